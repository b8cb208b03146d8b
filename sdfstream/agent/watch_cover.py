"""Which probe paths of a NIC are to be quick: the fewest that show every watched segment, and tell it from others.

A *segment* is a link direction that routes of queue pairs cross, there or back (`commands.path_watch`, whose rule of
blame says what is asked of the quick paths). For each segment t:

- **shown**: a quick path crosses t, so that its death is found as soon as quick probes find it;
- **told apart**: for each segment s in use, but those that just the same routes cross, a quick path crosses t and not
  s, so that t is not blamed, and no alternate over t given up, when s dies;
- **shown twice**, if t is in use: heavy loss may silence one path for a moment; two are silent when t is dead.

All that is asked as far as candidates can do it. Two paths over t whose other segments differ tell it from all others.
The choice is a greedy set cover (Chvátal 1979: at most ln n times as many as the best one), then what is
redundant is left out. Paths that are quick already are tried first, and stay while they suffice.

Where there is no room for all of that, what comes first is: segments in use shown, those of alternates shown, segments
in use told apart, then shown twice, those of alternates told apart.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.records.units import Bools

MOST_CELLS: Final = 1_000_000
"""Candidates × segments × segments in use; beyond, segments are shown but not told apart: a choice takes long."""

_Counts = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Crossings:
    """What is known of one NIC's candidates and of the routes that are watched."""

    paths: Mapping[ProbePath, frozenset[str]]
    """Each candidate's segments, as far as they are known."""
    in_use: Collection[frozenset[str]]
    """Segments of each route in use."""
    alternates: Collection[frozenset[str]] = ()
    """Segments of each armed alternate."""


@dataclass(slots=True)
class CoverRoom:
    """How many paths may be chosen."""

    most: int
    """Of the NIC."""
    target_of: Mapping[ProbePath, str] = field(default_factory=dict)
    """Where a candidate's probes go."""
    at_target: dict[str, int] = field(default_factory=dict)
    """How many paths each target may still get; one that is not named: any number. Choices are taken off."""


@dataclass(frozen=True, slots=True)
class Cover:
    """A choice of quick paths."""

    paths: tuple[ProbePath, ...]
    unshown: tuple[str, ...]
    """Watched segments that a candidate crosses, and no chosen path."""
    confused: int
    """Pairs of segments that candidates could tell apart, and the chosen paths do not."""
    once: int = 0
    """Segments in use that one path shows, and candidates could twice."""


def cover(crossings: Crossings, room: CoverRoom, keep: Collection[ProbePath] = ()) -> Cover:
    """Choose quick paths within `room`; `keep`: those that are quick now."""
    problem = _Problem(crossings, room)
    quick = problem.rows_of(keep)
    best = problem.better([problem.every_demand], quick, room.most + 1, bounded=False)
    if len(best) > room.most or not problem.suffices(best):
        best = problem.better(problem.staged, quick, room.most, bounded=True)
    return problem.result(best)


class _Problem:
    """The demands as arrays: rows are candidates and segments in order of their names.

    ``demand[t, 0]``: how many paths are to show segment t; ``demand[t, 1 + s]``: to tell it from segment s in use.
    """

    def __init__(self, crossings: Crossings, room: CoverRoom) -> None:
        self._room = room
        self._paths = sorted(crossings.paths)
        self._targets = [room.target_of.get(path, "") for path in self._paths]
        used = frozenset[str]().union(*crossings.in_use)
        watched = sorted(used.union(*crossings.alternates))
        self._segments = watched
        number = {name: i for i, name in enumerate(watched)}
        self._crosses: _Counts = np.zeros((len(self._paths), len(watched)), np.float32)
        for row, path in enumerate(self._paths):
            self._crosses[row, [number[s] for s in crossings.paths[path] if s in number]] = 1
        columns = sorted(number[s] for s in used)
        if self._crosses.size * (1 + len(columns)) > MOST_CELLS:
            columns = []
        ones = np.ones((len(self._paths), 1), np.float32)
        self._spares: _Counts = np.hstack([ones, 1 - self._crosses[:, columns]])
        routes = _membership([*crossings.in_use, *crossings.alternates], number)
        alike = (routes[:, None, :] == routes[None, columns, :]).all(axis=2)
        able = self._counts(range(len(self._paths)))
        self._in_use = in_use = np.array([name in used for name in watched], np.bool_)
        shown, apart = np.zeros_like(able), np.zeros_like(able)
        shown[:, 0] = np.minimum(able[:, 0], 1)
        apart[:, 1:] = np.minimum(able[:, 1:], 1) * ~alike
        twice = np.minimum(able, 2) * (shown > 0)
        rows = in_use[:, None]
        self.staged: list[_Counts] = [shown * rows, shown * ~rows, apart * rows, twice * rows, apart * ~rows]
        self.every_demand: _Counts = np.max(self.staged, axis=0)

    def rows_of(self, paths: Collection[ProbePath]) -> tuple[int, ...]:
        """Rows of those of `paths` that are candidates."""
        wanted = frozenset(paths)
        return tuple(row for row, path in enumerate(self._paths) if path in wanted)

    def better(self, stages: Sequence[_Counts], quick: Sequence[int], most: int, *, bounded: bool) -> list[int]:
        """The choice that goes on from `quick`; where that does not suffice, a new one if it leaves, or is, less."""
        choice = self._choose(stages, quick, most, bounded)
        if quick and set(choice) <= set(quick):
            return choice
        return min(choice, self._choose(stages, (), most, bounded), key=self._rank)

    def _choose(self, stages: Sequence[_Counts], first: Sequence[int], most: int, bounded: bool) -> list[int]:
        """Greedily, stage by stage, out of the rows `first` while they add anything; then without what is redundant.

        `bounded`: by the room at targets, too.
        """
        chosen: list[int] = []
        free = np.ones(len(self._paths), np.bool_)
        left = dict(self._room.at_target) if bounded else {}
        for target, n in left.items():
            if n <= 0:
                free[self._rows_to(target)] = False
        for stage in stages:
            unmet = self._unmet(stage, chosen)
            for among in (self._mask(first), np.ones_like(free)):
                while len(chosen) < most and (row := self._best(unmet, among & free)) >= 0:
                    chosen.append(row)
                    free[row] = False
                    unmet = np.maximum(unmet - self._meets(row), 0)
                    target = self._targets[row]
                    if target in left:
                        left[target] -= 1
                        if left[target] <= 0:
                            free[self._rows_to(target)] = False
        return self._without_redundant(chosen, np.max(stages, axis=0))

    def _best(self, unmet: _Counts, among: Bools) -> int:
        """The row that meets most of what is unmet, of equal ones the first; −1: none meets any."""
        rows = np.flatnonzero(among)
        columns = np.flatnonzero(unmet.any(axis=1))
        if not len(rows) or not len(columns):
            return -1
        crosses = self._crosses[np.ix_(rows, columns)]
        gains = (_product(crosses, (unmet[columns] > 0).astype(np.float32)) * self._spares[rows]).sum(axis=1)
        best = int(np.argmax(gains))
        return int(rows[best]) if gains[best] > 0 else -1

    def _mask(self, rows: Sequence[int]) -> Bools:
        mask = np.zeros(len(self._paths), np.bool_)
        mask[list(rows)] = True
        return mask

    def _rows_to(self, target: str) -> list[int]:
        return [row for row, where in enumerate(self._targets) if where == target]

    def _without_redundant(self, chosen: Sequence[int], demand: _Counts) -> list[int]:
        """`chosen` without paths whose every demand others meet; the last chosen go first."""
        times = self._counts(chosen)
        needed = list(chosen)
        for row in reversed(chosen):
            mine = self._meets(row)
            if (np.minimum(times, demand) <= times - mine).all():
                needed.remove(row)
                times = times - mine
        return needed

    def _meets(self, row: int) -> _Counts:
        """1 for each demand that a path meets."""
        met: _Counts = np.outer(self._crosses[row], self._spares[row])
        return met

    def _counts(self, chosen: Sequence[int]) -> _Counts:
        """How many of the chosen paths meet each demand."""
        times = _product(self._crosses[list(chosen)].T, self._spares[list(chosen)])
        return times

    def _unmet(self, demand: _Counts, chosen: Sequence[int]) -> _Counts:
        missing: _Counts = np.maximum(demand - self._counts(chosen), 0)
        return missing

    def suffices(self, chosen: Sequence[int]) -> bool:
        """Whether every demand is met, and no target gets more than its room."""
        left = dict(self._room.at_target)
        for row in chosen:
            if (target := self._targets[row]) in left:
                left[target] -= 1
        return all(n >= 0 for n in left.values()) and not self._unmet(self.every_demand, chosen).any()

    def _rank(self, chosen: Sequence[int]) -> tuple[int, ...]:
        """The less a choice leaves unmet, stage by stage, and the fewer paths it takes, the lower; the first wins."""
        return *(int(self._unmet(stage, chosen).sum()) for stage in self.staged), len(chosen)

    def result(self, chosen: Sequence[int]) -> Cover:
        """The choice, by names; its paths are taken off the room of their targets."""
        unmet = self._unmet(self.every_demand, chosen)
        unshown = self._unmet(self.staged[0] + self.staged[1], chosen)[:, 0] > 0
        for row in chosen:
            if (target := self._targets[row]) in self._room.at_target:
                self._room.at_target[target] -= 1
        return Cover(
            tuple(self._paths[row] for row in chosen),
            tuple(name for name, missing in zip(self._segments, unshown.tolist(), strict=True) if missing),
            int(np.count_nonzero(unmet[:, 1:])),
            int(np.count_nonzero((unmet[:, 0] > 0) & ~unshown)),
        )


def _product(a: _Counts, b: _Counts) -> _Counts:
    """The matrix product of counts, which are finite; what BLAS pads with may raise the flag for invalid values."""
    with np.errstate(invalid="ignore"):
        product: _Counts = a @ b
    return product


def _membership(routes: Sequence[frozenset[str]], number: Mapping[str, int]) -> Bools:
    """(segments, routes) whether each route crosses each segment."""
    crossed = np.zeros((len(number), len(routes)), np.bool_)
    for column, route in enumerate(routes):
        crossed[[number[name] for name in route], column] = True
    return crossed
