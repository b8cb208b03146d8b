"""When a host's probe paths are traced, and the distances that they measure.

A path is due when it is first answered, when its distance changes, when it recovers from silence, and when another path
between the same two NICs falls silent or recovers: routers that lose a link spread their flows anew, also those that
did not use it. A path that is not answered for a while is not traced.

A few of the paths that fall silent are traced once, at once: how far their packets still get tells which of the links
in a row passes nothing. More would tell no more, and routers answer few.

The distance of a NIC is the number of routers to it: probes leave with TTL 255, and the reflector reports the TTL with
which they arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from sdfstream.probes.stamp.datagrams import SENT_TTL
from sdfstream.probes.stamp.liveness import ALIVE, LIMIT_INTERVALS, SILENT
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.trace.silent import SilentTracer
from sdfstream.probes.trace.tracer import MAX_HOPS, SOON, Key, Tracer
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Int64s, UInt8s

SILENCE_NS: Final = 2 * NS_PER_S
"""A path not answered for this long, or for three of its intervals, is not traced; answered again, it is traced anew:
its route may have changed."""
SETTLE_NS: Final = 100 * NS_PER_MS
"""Routing settles after a change, and paths are found silent one by one: traced too soon, all is traced twice."""

_MOST_SILENT: Final = 4
_SILENT_PAUSE_NS: Final = 10 * NS_PER_S
"""Paths of one NIC of ours traced in so long because they fell silent, each to another NIC."""

Pair = tuple[str, str]
"""NIC ids of sender and receiver."""
Ready = Callable[[str], bool]
"""Whether packets can be sent by a NIC, by its id."""


class Distance(NamedTuple):
    """Routers between two NICs, by the probes between them."""

    routers: int
    """The fewest on any path between them: no packet with this TTL gets further than the last router."""
    sure: bool
    """Equally many on all paths, so on others, too."""


class PathChanges(NamedTuple):
    """Changes of probe paths and NICs since the last step."""

    state_changed: set[Pair]
    """NIC of ours and far NIC, some of whose probe paths fell silent or recovered."""
    distance_changed: set[Pair]
    """Those whose number of routers is another one now."""
    opened_nics: set[str]
    """NICs of ours whose raw sockets were opened."""

    def __bool__(self) -> bool:
        return any(self)


class PathBook:
    """The probe paths of one host: their distances, and when each is traced. Its subjects are path numbers.

    Parameters
    ----------
    tracer : Tracer
    silent : SilentTracer
        Traces those that fell silent.
    """

    def __init__(self, tracer: Tracer, silent: SilentTracer) -> None:
        self._tracer, self._silent = tracer, silent
        self._keys: Sequence[Key] = ()
        self._identity: list[tuple[object, int]] = []
        self._pairs: list[Pair] = []
        self._pair_number: dict[Pair, int] = {}
        self._pair: Int64s = np.empty(0, np.int64)
        self._received_at_ns: Int64s = np.empty(0, np.int64)
        self._distance: Int64s = np.empty(0, np.int64)
        self._state: UInt8s = np.empty(0, np.uint8)
        self._stale: Bools = np.empty(0, np.bool_)
        self._silence_ns: Int64s = np.empty(0, np.int64)
        self._known: dict[Pair, Distance] = {}
        self._traced_silent_ns: dict[str, dict[str, int]] = {}
        """NIC of ours to far NICs, with when a path to each was last traced because it fell silent."""

    def adopt(self, paths: Paths, keys: Sequence[Key], first: int) -> None:
        """Trace these paths; the first `first` of them never change."""
        have, want, self._keys = len(self._identity), len(paths), keys
        self._silence_ns = np.maximum(SILENCE_NS, LIMIT_INTERVALS * paths.interval_ns)
        if want > have:
            self._pair = np.append(self._pair, np.zeros(want - have, np.int64))
            self._received_at_ns = np.append(self._received_at_ns, np.full(want - have, ABSENT_NS))
            self._distance = np.append(self._distance, np.full(want - have, -1))
            self._state = np.append(self._state, np.zeros(want - have, np.uint8))
            self._stale = np.append(self._stale, np.ones(want - have, np.bool_))
            self._identity += [(None, 0)] * (want - have)
        for path in range(min(first, have), want):
            session = paths.sessions[int(paths.session[path])]
            identity = (session, int(paths.source_port[path]))
            if self._identity[path] == identity:
                continue
            self._tracer.drop(path)
            self._silent.cancel(path)
            self._tracer.add(path, keys[path])
            self._identity[path] = identity
            self._pair[path] = self._number((session.src, session.dst))
            self._received_at_ns[path], self._distance[path], self._stale[path] = ABSENT_NS, -1, True

    def distance(self, pair: Pair) -> Distance | None:
        """Routers from the first NIC to the second; None: not measured yet."""
        return self._known.get(pair)

    def step(
        self, last_received_at_ns: Int64s, ttl_fwd: UInt8s, state: UInt8s, now_ns: int
    ) -> tuple[set[Pair], set[Pair]]:
        """Request due traces; pairs some of whose paths fell silent or recovered, and those whose distance changed.

        Parameters
        ----------
        last_received_at_ns : (p,) int64
            Last answer of each path, steady clock; ABSENT_NS: never.
        ttl_fwd : (p,) uint8
            TTL with which its probes arrive; 0: not reported.
        state : (p,) uint8
            Of `liveness`.
        """
        fresh = last_received_at_ns > self._received_at_ns
        recovered = (state == ALIVE) & (self._state == SILENT)
        fell_silent = (state == SILENT) & (self._state == ALIVE)
        distance = np.where(ttl_fwd > 0, SENT_TTL - ttl_fwd.astype(np.int64), -1)
        distance[distance > MAX_HOPS] = -1
        moved = fresh & (distance != self._distance)
        due = moved | recovered | (fresh & self._stale)
        silent = now_ns - last_received_at_ns >= self._silence_ns
        silent |= last_received_at_ns == ABSENT_NS
        for path in np.flatnonzero(silent & ~self._stale).tolist():
            self._tracer.hold(path)  # until it is answered again
        self._stale = silent
        self._received_at_ns = last_received_at_ns.copy()
        self._state = state.copy()
        self._distance[moved] = distance[moved]
        for path in np.flatnonzero(fell_silent & (self._distance > 0)).tolist():
            if self._may_trace_silent(path, now_ns):
                self._tracer.hold(path)  # until it is answered again
                self._silent.request(path, self._keys[path], int(self._distance[path]))
        changed = np.unique(self._pair[recovered | fell_silent])
        for path in np.flatnonzero(due).tolist():
            self._request(path, now_ns)
        if len(changed):
            for path in np.flatnonzero(np.isin(self._pair, changed) & (state == ALIVE) & ~due).tolist():
                self._request(path, now_ns + SETTLE_NS)
        new = self._measure(np.unique(self._pair[moved])) if moved.any() else set()
        return {self._pairs[p] for p in changed.tolist()}, new

    def _may_trace_silent(self, path: int, now_ns: int) -> bool:
        src, dst = self._pairs[self._pair[path]]
        lately = {d: t for d, t in self._traced_silent_ns.get(src, {}).items() if now_ns - t < _SILENT_PAUSE_NS}
        may = dst not in lately and len(lately) < _MOST_SILENT
        self._traced_silent_ns[src] = lately | ({dst: now_ns} if may else {})
        return may

    def _request(self, path: int, due_at_ns: int) -> None:
        self._silent.cancel(path)
        if self._distance[path] >= 0:
            self._tracer.request(path, int(self._distance[path]), due_at_ns, SOON)
        else:
            self._tracer.hold(path)

    def _measure(self, pairs: Int64s) -> set[Pair]:
        """Update the distances of these pairs; those that changed."""
        changed = set()
        for number in pairs.tolist():
            measured = self._distance[(self._pair == number) & (self._distance >= 0)]
            pair = self._pairs[number]
            now = Distance(int(measured.min()), bool(measured.min() == measured.max())) if len(measured) else None
            if now != self._known.get(pair):
                changed.add(pair)
                if now is None:
                    del self._known[pair]
                else:
                    self._known[pair] = now
        return changed

    def _number(self, pair: Pair) -> int:
        if pair not in self._pair_number:
            self._pair_number[pair] = len(self._pairs)
            self._pairs.append(pair)
        return self._pair_number[pair]
