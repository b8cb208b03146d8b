"""Which paths of queue pairs are dead and which are clean, by the agent's own probes alone.

A *watch* of a path is the list of segments it crosses (link directions, data and answers), each with the probe paths of
the same NIC that cross it, too. A segment is **dead** when all of its probe paths, at least one, are silent; **clean**
when one of them is alive; else unknown. One broken link silences every probe path across it, so segments up and down
the same probe paths look dead with it. Only those dead segments are blamed that best explain a silent probe path: no
other dead segment that this probe path crosses has more silent probe paths to its support. A path is

- **dead** when one of its segments is blamed,
- **clean** when all of its segments (at least one) are clean,
- else **unknown**, which is never acted upon.

A NIC that is down makes its probe paths unknown, not silent, so nothing follows from it. A probe path that is not
probed here says nothing: a command may name one that has ended since. A segment with no other is unknown.

Probe paths of one NIC may have very different limits (how long without an answer until they are silent), and a slow
one says "alive" for longer than is true. So of a segment's probe paths only the *quick* ones are asked: those with at
most twice the limit of the quickest.

What crosses a segment is said by commands, but on the way there the host's own traces count (`crossings`): the quick
probes of a queue pair that was armed a moment ago are in no command yet.

Names are resolved to slots of the host's liveness once per generation; an assessment is a dozen numpy calls over all
entries, and none of them when no state changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sdfstream.agent.commands.crossings import ProbePath, corrected
from sdfstream.errors import FormatError
from sdfstream.records.units import Bools, UInt8s

UNKNOWN: Final = 0
CLEAN: Final = 1
DEAD: Final = 2
VERDICTS: Final = ("unknown", "clean", "dead")

_ALIVE: Final = 1
_SILENT: Final = 2
"""States of a slot, as `probes.stamp.liveness` numbers them (a test keeps them equal); 0 is unknown."""
NO_WITNESS: Final = -2
"""In place of a slot: the path says nothing of what crosses a segment, whether it is answered or not."""
_MOST_SEGMENTS: Final = 64
_MOST_PATHS: Final = 256

Ints = npt.NDArray[np.int64]


class Segment(NamedTuple):
    """A link direction, and the probe paths that cross it."""

    name: str
    paths: tuple[ProbePath, ...]


class WatchKey(NamedTuple):
    """Names a watch: a command and the source port whose route it describes."""

    command: str
    path: int


class ProbeStates(Protocol):
    """The liveness of one host's probe paths, as far as a watch needs it."""

    @property
    def generation(self) -> int:
        """Changes whenever slots are given out anew, or a route is known anew."""

    def slot(self, src: str, dst: str, path: int, dscp: int) -> int:
        """Where the path stands in `states`; −1: it is not probed; `NO_WITNESS`: it is not to be heard."""

    def states(self) -> UInt8s:
        """0 unknown, 1 alive, 2 silent, by slot."""

    def limit_ns(self, slot: int) -> int:
        """How long a path may go without an answer until it is silent; changes only with `generation`."""

    def routes(self, src: str) -> Mapping[ProbePath, tuple[str, ...]]:
        """Hops of the probe paths of a NIC, there, as far as this host's own traces know; changes with `generation`."""


class WatchedRoute(NamedTuple):
    """A route that a command watches: of a queue pair now, or one that it may be moved to."""

    src: str
    """NIC id that sends the data."""
    dst: str
    dscp: int
    in_use: bool
    segments: tuple[str, ...]
    """Names, data and answers."""


@dataclass(frozen=True, slots=True)
class WatchedRoutes:
    """All routes that commands watch on one host, and what probe paths cross their segments."""

    routes: tuple[WatchedRoute, ...] = ()
    crossing: Mapping[tuple[str, str], tuple[ProbePath, ...]] = field(default_factory=dict)
    """(NIC id that sends, segment) to the probe paths of that NIC that cross it, as the newest command says."""


def read_watch(raw: Any) -> tuple[Segment, ...]:
    """The segments of a watch in a command.

    Raises
    ------
    FormatError
        ``command``: it is not a list of {"segment": name, "paths": [[dst NIC, source port, dscp], …]}, or too long.
    """
    try:
        if not isinstance(raw, list) or len(raw) > _MOST_SEGMENTS:
            raise TypeError(f"a watch is a list of at most {_MOST_SEGMENTS} segments")
        return tuple(_segment(entry) for entry in raw)
    except (TypeError, KeyError, ValueError) as error:
        raise FormatError("command", f"watch: {error}") from error


def _segment(entry: Mapping[str, Any]) -> Segment:
    paths = entry["paths"]
    if not isinstance(paths, list) or len(paths) > _MOST_PATHS:
        raise TypeError(f"paths of a segment are a list of at most {_MOST_PATHS}")
    read = dict.fromkeys(ProbePath(str(dst), int(port), int(dscp)) for dst, port, dscp in paths)
    return Segment(str(entry["segment"]), tuple(read))


class WatchLayout(NamedTuple):
    """What crosses what, by slots of the host's probe paths."""

    segments: tuple[tuple[int, ...], ...] = ()
    """Quick probe paths of each."""
    routes: Mapping[WatchKey, tuple[int, ...]] = MappingProxyType({})
    """Segments of each watch."""


@dataclass(slots=True)
class _PathWatch:
    src: str
    segments: tuple[Segment, ...]
    issued_at_ns: int
    verdict: int = UNKNOWN
    clean_since_ns: int | None = None
    dead_since_ns: int | None = None


class PathWatches:
    """All watches of one host."""

    def __init__(self) -> None:
        self._watches: dict[WatchKey, _PathWatch] = {}
        self._generation: int | None = None
        self._laid_out = False
        self._order: list[_PathWatch] = []
        self._seen: UInt8s | None = None
        self.unresolved = 0
        """Probe paths of the watches that are not probed here."""
        self.layout = WatchLayout()
        """By which `assess` has judged; another object whenever it is another one."""

    def __len__(self) -> int:
        return len(self._watches)

    def put(self, key: WatchKey, src: str, segments: Sequence[Segment], issued_at_ns: int) -> None:
        """Watch a path, or watch it by newer knowledge."""
        known = self._watches.get(key)
        if known is not None and known.src == src and known.segments == tuple(segments):
            known.issued_at_ns = issued_at_ns
            return
        watch = _PathWatch(src, tuple(segments), issued_at_ns)
        if known is not None:  # a newer list of probe paths does not interrupt a hold-down; its verdict may
            watch.verdict = known.verdict
            watch.clean_since_ns, watch.dead_since_ns = known.clean_since_ns, known.dead_since_ns
        self._watches[key] = watch
        self._laid_out = False

    def drop(self, key: WatchKey) -> None:
        """Watch it no longer."""
        if self._watches.pop(key, None) is not None:
            self._laid_out = False

    def verdict(self, key: WatchKey) -> int:
        """UNKNOWN, CLEAN or DEAD at the last assessment."""
        watch = self._watches.get(key)
        return UNKNOWN if watch is None else watch.verdict

    def clean_since_ns(self, key: WatchKey) -> int | None:
        """Clean at every assessment since then; None: not clean."""
        watch = self._watches.get(key)
        return None if watch is None else watch.clean_since_ns

    def dead_since_ns(self, key: WatchKey) -> int | None:
        """Dead at every assessment since then; None: not dead."""
        watch = self._watches.get(key)
        return None if watch is None else watch.dead_since_ns

    def assess(self, slots: ProbeStates, now_ns: int) -> bool:
        """Assess all watches by the present states; whether any verdict may have changed."""
        if not self._laid_out or slots.generation != self._generation:
            self._lay_out(slots)
            self._generation = slots.generation
            self._laid_out, self._seen = True, None
        if not self._order:
            return False
        states = slots.states()[self._slot]
        if self._seen is not None and np.array_equal(states, self._seen):
            return False
        self._seen = states
        changed = False
        for watch, verdict in zip(self._order, self._verdicts(states).tolist(), strict=True):
            if verdict != CLEAN:
                watch.clean_since_ns = None
            elif watch.clean_since_ns is None:
                watch.clean_since_ns = now_ns
            if verdict != DEAD:
                watch.dead_since_ns = None
            elif watch.dead_since_ns is None:
                watch.dead_since_ns = now_ns
            changed |= verdict != watch.verdict
            watch.verdict = verdict
        return changed

    def _verdicts(self, states: UInt8s) -> UInt8s:
        """Of all watches in `_order`, from the states of all entries."""
        segments = len(self._paths_of)
        silent = np.bincount(self._segment, states == _SILENT, segments)
        alive = np.bincount(self._segment, states == _ALIVE, segments)
        dead = (silent == self._paths_of) & (self._paths_of > 0)
        # of each silent probe path, the best support among the dead segments that it crosses
        support = np.where(dead, silent, 0.0)
        best = np.zeros(self._probes)
        np.maximum.at(best, self._probe, support[self._segment])
        explains = dead[self._segment] & (support[self._segment] >= best[self._probe])
        blamed = np.bincount(self._segment, explains, segments) > 0
        return self._of_watches(blamed, alive > 0)

    def _of_watches(self, blamed: Bools, clean: Bools) -> UInt8s:
        n = len(self._order)
        any_dead = np.bincount(self._watch_of, blamed[self._crosses], n) > 0
        all_clean = np.bincount(self._watch_of, clean[self._crosses], n) == self._crosses_of
        verdict = np.where(all_clean & (self._crosses_of > 0), CLEAN, UNKNOWN)
        return np.where(any_dead, DEAD, verdict).astype(np.uint8)

    def _lay_out(self, slots: ProbeStates) -> None:
        """Arrays over entries (segment, probe path) and over (watch, segment)."""
        newest = self._corrected(slots)
        number = {key: i for i, key in enumerate(newest)}
        segment: list[int] = []
        slot: list[int] = []
        probe: list[int] = []
        probes: dict[tuple[str, ProbePath], int] = {}
        self.unresolved = 0
        for (src, name), paths in newest.items():
            for path, found in _quickest(slots, src, paths):
                if found < 0:
                    self.unresolved += 1
                    continue
                segment.append(number[src, name])
                slot.append(found)
                probe.append(probes.setdefault((src, path), len(probes)))
        self._order = list(self._watches.values())
        self._segment: Ints = np.array(segment, np.int64)
        self._slot: Ints = np.array(slot, np.int64)
        self._probe: Ints = np.array(probe, np.int64)
        self._probes = len(probes)
        self._paths_of: Ints = np.bincount(self._segment, minlength=len(newest)).astype(np.int64)
        crossed = [(i, number[w.src, s.name]) for i, w in enumerate(self._order) for s in w.segments]
        pairs = np.array(sorted(set(crossed)), np.int64).reshape(-1, 2)
        self._watch_of: Ints = pairs[:, 0]
        self._crosses: Ints = pairs[:, 1]
        self._crosses_of: Ints = np.bincount(self._watch_of, minlength=len(self._order)).astype(np.int64)
        self.layout = self._numbered(number, segment, slot)

    def _numbered(self, number: Mapping[tuple[str, str], int], segment: list[int], slot: list[int]) -> WatchLayout:
        """The layout, of entries (segment, slot)."""
        paths: list[list[int]] = [[] for _ in number]
        for at, found in zip(segment, slot, strict=True):
            paths[at].append(found)
        crossed = {
            key: tuple(dict.fromkeys(number[watch.src, s.name] for s in watch.segments))
            for key, watch in self._watches.items()
        }
        return WatchLayout(tuple(map(tuple, paths)), crossed)

    def _corrected(self, slots: ProbeStates) -> dict[tuple[str, str], tuple[ProbePath, ...]]:
        """`crossing` by what the host has traced itself."""
        of_nic: dict[str, dict[str, tuple[ProbePath, ...]]] = {}
        for (src, name), paths in self.crossing().items():
            of_nic.setdefault(src, {})[name] = paths
        return {
            (src, name): paths
            for src, crossing in of_nic.items()
            for name, paths in corrected(slots.routes(src), crossing).items()
        }

    def crossing(self) -> dict[tuple[str, str], tuple[ProbePath, ...]]:
        """Probe paths of segments by commands: of several lists the newest counts, of equally new ones their union."""
        newest: dict[tuple[str, str], tuple[int, tuple[ProbePath, ...]]] = {}
        for watch in self._watches.values():
            for segment in watch.segments:
                key = watch.src, segment.name
                issued_at_ns, paths = newest.get(key, (-1, ()))
                if watch.issued_at_ns > issued_at_ns:
                    newest[key] = watch.issued_at_ns, segment.paths
                elif watch.issued_at_ns == issued_at_ns and paths != segment.paths:
                    newest[key] = issued_at_ns, tuple(dict.fromkeys((*paths, *segment.paths)))
        return {key: paths for key, (_, paths) in newest.items()}


def _quickest(slots: ProbeStates, src: str, paths: Sequence[ProbePath]) -> list[tuple[ProbePath, int]]:
    """The quick ones of these probe paths with their slots, and those that are not probed here (−1)."""
    known = ((path, slots.slot(src, path.dst, path.port, path.dscp)) for path in paths)
    found = [(path, slot) for path, slot in known if slot != NO_WITNESS]
    limits_ns = {slot: slots.limit_ns(slot) for _, slot in found if slot >= 0}
    most_ns = 2 * min(limits_ns.values(), default=0)
    return [(path, slot) for path, slot in found if slot < 0 or limits_ns[slot] <= most_ns]
