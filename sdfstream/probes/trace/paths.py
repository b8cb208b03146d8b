"""When a host's probe paths are traced, and what they tell about distances.

A path is due when it is first heard, when its length changes, when it comes back from silence, and when another path
between the same two NICs falls silent or comes back: routers that lose a link spread their flows anew, also those that
did not use it. A path not heard for a while is not traced.

How far a NIC is, is told by the probes: they leave with TTL 255 and the reflector says with which TTL they arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from sdfstream.probes.stamp.datagrams import SENT_TTL
from sdfstream.probes.stamp.liveness import ALIVE, SILENT
from sdfstream.probes.stamp.paths import Paths
from sdfstream.probes.trace.hops import LONGEST, SOON, Key, Tracer
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Int64s, UInt8s

SILENCE_NS: Final = 2 * NS_PER_S
"""A path not heard for this long is not traced; heard again, it is traced anew: it may run elsewhere now."""
SETTLE_NS: Final = 100 * NS_PER_MS
"""Routers need a moment after a change, and silence is told path by path: traced too soon, all is traced twice."""

Pair = tuple[str, str]
"""NIC ids of sender and receiver."""


class Distance(NamedTuple):
    """Routers between two NICs, by the probes between them."""

    routers: int
    """The fewest that any of them met: no packet with this TTL gets further than the last router."""
    sure: bool
    """All met equally many, so others will, too."""


class PathBook:
    """What is known of the probe paths of one host, and when each is traced. Its subjects are path numbers.

    Parameters
    ----------
    tracer : Tracer
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._who: list[tuple[object, int]] = []
        self._pairs: list[Pair] = []
        self._pair_number: dict[Pair, int] = {}
        self._pair: Int64s = np.empty(0, np.int64)
        self._heard_at: Int64s = np.empty(0, np.int64)
        self._distance: Int64s = np.empty(0, np.int64)
        self._state: UInt8s = np.empty(0, np.uint8)
        self._gone: Bools = np.empty(0, np.bool_)
        self._known: dict[Pair, Distance] = {}

    def adopt(self, paths: Paths, keys: Sequence[Key], first: int) -> None:
        """Trace these paths; the first `first` of them never change."""
        have, want = len(self._who), len(paths)
        if want > have:
            self._pair = np.append(self._pair, np.zeros(want - have, np.int64))
            self._heard_at = np.append(self._heard_at, np.full(want - have, ABSENT_NS))
            self._distance = np.append(self._distance, np.full(want - have, -1))
            self._state = np.append(self._state, np.zeros(want - have, np.uint8))
            self._gone = np.append(self._gone, np.ones(want - have, np.bool_))
            self._who += [(None, 0)] * (want - have)
        for path in range(min(first, have), want):
            session = paths.sessions[int(paths.session[path])]
            who = (session, int(paths.source_port[path]))
            if self._who[path] == who:
                continue
            self._tracer.drop(path)
            self._tracer.add(path, keys[path])
            self._who[path] = who
            self._pair[path] = self._number((session.src, session.dst))
            self._heard_at[path], self._distance[path], self._gone[path] = ABSENT_NS, -1, True

    def distance(self, pair: Pair) -> Distance | None:
        """How far the second NIC is from the first; None: the probes have not told yet."""
        return self._known.get(pair)

    def step(self, heard_at_ns: Int64s, ttl_fwd: UInt8s, state: UInt8s, now_ns: int) -> tuple[set[Pair], set[Pair]]:
        """Ask for what is due; pairs some of whose paths fell silent or came back, and those whose distance changed.

        Parameters
        ----------
        heard_at_ns : (p,) int64
            When each path was last answered, steady clock; ABSENT_NS: never.
        ttl_fwd : (p,) uint8
            With which TTL its probes arrive; 0: not told.
        state : (p,) uint8
            Of `liveness`.
        """
        fresh = heard_at_ns > self._heard_at
        came = (state == ALIVE) & (self._state == SILENT)
        fell = (state == SILENT) & (self._state == ALIVE)
        distance = np.where(ttl_fwd > 0, SENT_TTL - ttl_fwd.astype(np.int64), -1)
        distance[distance > LONGEST] = -1
        moved = fresh & (distance != self._distance)
        due = moved | came | (fresh & self._gone)
        silent = now_ns - heard_at_ns >= SILENCE_NS
        silent |= heard_at_ns == ABSENT_NS
        for path in np.flatnonzero(silent & ~self._gone).tolist():
            self._tracer.hold(path)  # until it is heard again
        self._gone = silent
        self._heard_at = heard_at_ns.copy()
        self._state = state.copy()
        self._distance[moved] = distance[moved]
        changed = np.unique(self._pair[came | fell])
        for path in np.flatnonzero(due).tolist():
            self._ask(path, now_ns)
        if len(changed):
            for path in np.flatnonzero(np.isin(self._pair, changed) & (state == ALIVE) & ~due).tolist():
                self._ask(path, now_ns + SETTLE_NS)
        new = self._measure(np.unique(self._pair[moved])) if moved.any() else set()
        return {self._pairs[p] for p in changed.tolist()}, new

    def _ask(self, path: int, due_at_ns: int) -> None:
        if self._distance[path] >= 0:
            self._tracer.ask(path, int(self._distance[path]), due_at_ns, SOON)
        else:
            self._tracer.hold(path)

    def _measure(self, pairs: Int64s) -> set[Pair]:
        """Look at the distances of these pairs anew; those that changed."""
        changed = set()
        for number in pairs.tolist():
            told = self._distance[(self._pair == number) & (self._distance >= 0)]
            pair = self._pairs[number]
            now = Distance(int(told.min()), bool(told.min() == told.max())) if len(told) else None
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
