"""Paths as observations, and the smallest problem that says the same to the search for blame.

Only elements that some sick path may cross can be blamed, so only they remain; healthy paths that cross the same of
them are one row, with their number. A fabric of thousands of paths shrinks to some hundreds of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.numeric.blame import TrialCounts

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NOW_NS = np.iinfo(np.int64).max
_BEYOND = 0.2
_MOST_TRACES = 400
"""So many traces tell where silence begins; of a fleet's there are thousands."""
_LIKELIER = float(np.log(3.0))
_SWITCH, _CABLE, _QUEUES, _LOSSY = (float(np.log(odds)) for odds in (1e-5, 1e-4, 1e-12, 1e-7))


@dataclass(frozen=True, slots=True)
class Observations:
    """Paths with trials: each row is a session seen in its forward, its reverse or both directions at once."""

    slots: Ints
    fwd: Bools
    rev: Bools
    failed: Floats
    tried: Floats
    then_ns: Ints
    """Bus time of which each row speaks: its route is taken as it was then."""

    @classmethod
    def join(cls, elements: Iterable[Observations]) -> Observations:
        """All rows, one after the other."""
        whole = list(elements)
        return cls(
            np.concatenate([o.slots for o in whole]),
            np.concatenate([o.fwd for o in whole]),
            np.concatenate([o.rev for o in whole]),
            np.concatenate([o.failed for o in whole]),
            np.concatenate([o.tried for o in whole]),
            np.concatenate([o.then_ns for o in whole]),
        )

    @classmethod
    def of(
        cls, slots: Ints, directions: str, failed: float | Floats, tried: float | Floats, then_ns: Ints | None = None
    ) -> Observations:
        """Rows of `slots`, all in `directions` (``fwd``, ``rev`` or ``both``), by their routes now or at `then_ns`."""
        n = slots.size
        fwd, rev = np.full(n, directions != "rev"), np.full(n, directions != "fwd")
        count = [np.broadcast_to(x, n).astype(float) for x in (failed, tried)]
        return cls(slots, fwd, rev, count[0], count[1], np.full(n, _NOW_NS) if then_ns is None else then_ns)

    def only(self, rows: Bools) -> Observations:
        """These rows alone."""
        o = self
        return Observations(o.slots[rows], o.fwd[rows], o.rev[rows], o.failed[rows], o.tried[rows], o.then_ns[rows])

    def direction(self, row: int) -> str:
        """``fwd``, ``rev`` or ``both``."""
        if self.fwd[row] and self.rev[row]:
            return "both"
        return "fwd" if self.fwd[row] else "rev"


@dataclass(frozen=True, slots=True)
class Problem:
    """What `numeric.blame` is given: element numbers are positions in `elements`, then one of its own per sick path."""

    trials: TrialCounts
    """Rows: first the sick paths, in the order of `sick`, then groups of healthy ones."""
    elements: Ints
    """Cabling's numbers of the elements that can be blamed."""
    own: Ints
    """Number of each sick path's own element."""
    sick: Observations


def pose(cabling: Cabling, seen: Observations) -> Problem:
    """The problem of explaining the failed trials in `seen`, of which there must be some."""
    sick, well = seen.only(seen.failed > 0), seen.only(seen.failed == 0)
    row, element, weight = heeding_traces(cabling, sick, *cabling.entries(sick.slots, sick.fwd, sick.rev, sick.then_ns))
    elements = np.unique(element)
    number = np.full(len(cabling.elements), -1, np.int64)
    number[elements] = np.arange(elements.size)
    well_row, well_element, well_weight = cabling.entries(well.slots, well.fwd, well.rev, well.then_ns)
    keep = number[well_element] >= 0
    well_row, well_element, well_weight = well_row[keep], number[well_element[keep]], well_weight[keep]
    group, count, tried = _groups(well_row, well_element, well_weight, well.tried)
    keep = group[well_row] >= 0
    n = sick.slots.size
    own = elements.size + np.arange(n)
    trials = TrialCounts(
        np.concatenate([sick.failed, np.zeros(count.size)]),
        np.concatenate([sick.tried, tried]),
        np.concatenate([row, np.arange(n), n + group[well_row[keep]]]),
        np.concatenate([number[element], own, well_element[keep]]),
        np.concatenate([weight, np.ones(n), well_weight[keep]]),
        np.concatenate([np.ones(n), count]),
    )
    return Problem(trials, elements, own, sick)


def heeding_traces(
    cabling: Cabling, sick: Observations, row: Ints, element: Ints, weight: Floats
) -> tuple[Ints, Ints, Floats]:
    """Entries (`Cabling.entries`) of silent paths without what their packets pass since, by traces.

    What lies beyond what stops them hardly counts, but it may be at fault: a router answers few packets, and its
    answers may be lost on their own way back.
    """
    keep, weight = np.ones(row.size, np.bool_), weight.copy()
    known = np.flatnonzero(np.isin(sick.slots, cabling.silent_traces.sessions) & sick.fwd)
    for which in known[:: known.size // _MOST_TRACES + 1].tolist():
        passed, beyond = cabling.reached_since(int(sick.slots[which]), int(sick.then_ns[which]))
        mine = slice(*np.searchsorted(row, [which, which + 1]).tolist())  # entries are in order of their rows
        keep[mine] = ~np.isin(element[mine], passed)
        weight[mine] *= np.where(np.isin(element[mine], beyond), _BEYOND, 1.0)
    return row[keep], element[keep], weight[keep]


def _groups(row: Ints, element: Ints, weight: Floats, tried: Floats) -> tuple[Ints, Floats, Floats]:
    """(group of each row's first like, −1 for the others; size of each group; mean trials of each group)."""
    code = np.bincount(row, _mixed(element) * weight, tried.size)
    there = np.flatnonzero(np.bincount(row, minlength=tried.size))
    _, first, inverse = np.unique(code[there], return_index=True, return_inverse=True)
    count = np.bincount(inverse, minlength=first.size).astype(np.float64)
    group = np.full(tried.size, -1, np.int64)
    group[there[first]] = np.arange(first.size)
    mean: Floats = np.bincount(inverse, tried[there], first.size) / np.maximum(count, 1.0)
    return group, count, mean


def _mixed(element: Ints) -> Floats:
    """A fixed pseudo-random number in 1..2 per element: sums of them differ between sets of elements."""
    result: Floats = 1.0 + np.modf(np.abs(np.sin((element + 1.0) * 12.9898)) * 43758.5453)[0]
    return result


def log_priors(cabling: Cabling, kind: str = "") -> Floats:
    """(elements,) log odds of being faulty before anything is seen: a switch less often than a cable or NIC.

    For ``silence`` a dead downlink to a leaf is likelier than a dead uplink: that the leaf itself takes out of its ECMP
    group, so only a fault that keeps the carrier stays silent there; the spine has no other route.
    For a ``queue`` the reverse holds: of links of one speed in a row that carry the same packets only the first can
    queue. Queues at two links of a switch are two queues, not its own (`_QUEUES`). A small ``loss`` of all cables of a
    switch is told later than that some have it (`_LOSSY`).
    """
    return np.array([_log_odds(cabling, name, kind) for name in cabling.elements.list], np.float64)


def _log_odds(cabling: Cabling, name: str, kind: str) -> float:
    if name.startswith("node "):
        return {"queue": _QUEUES, "loss": _LOSSY}.get(kind, _SWITCH)
    a, arrow, b = name.partition("->")
    if arrow and a and kind in ("silence", "queue") and (b in cabling.topology.leaves) == (kind == "silence"):
        return _CABLE + _LIKELIER
    return _CABLE
