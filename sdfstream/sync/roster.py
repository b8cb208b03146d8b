"""Who is there: sessions, paths and clocks by number, entered at first sight and forgotten after long silence."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfstream.records.units import ABSENT_NS, Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.duplicates import Seen
from sdfstream.sync.edges import session_table
from sdfstream.sync.floors import path_table
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.nodes import Nodes
from sdfstream.sync.registry import Pair, Registry
from sdfstream.sync.ring import Ring


class Roster:
    """The tables whose rows are sessions and paths, and the names behind all numbers.

    Attributes
    ----------
    registry : Registry
    sessions, paths : Table
    ring : Ring
        The sessions' last block minima.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.registry = Registry()
        self.sessions = session_table()
        self.paths = path_table()
        self.ring = Ring()
        self._seen = Seen()
        self._degree: Float64s = np.empty(0)
        self._counted = 0

    def number(self, x: Exchanges, nodes: Nodes, bus_at_ns: int, now: float) -> Int64s:
        """Session of each row; new sessions, paths and clocks are entered. `now`: bus time since the origin."""
        registry, table = self.registry, self.sessions
        pair = np.array([registry.pair(Pair(*names)) for names in x.names], dtype=np.int64)[x.pair]
        rest = (x.dscp << 32) | x.path
        session, fresh = registry.sessions.slots((pair << 40) | rest)
        if fresh.size:
            start = table.n
            table.grow(fresh.size)
            self.ring.grow(fresh.size)
            pairs = pair[fresh]
            table["pair"][start:] = pairs
            table["clock_src"][start:] = registry.pair_clock_src[pairs]
            table["clock_dst"][start:] = registry.pair_clock_dst[pairs]
            path, new_paths = registry.paths.slots((registry.pair_route[pairs] << 40) | rest[fresh])
            table["path"][start:] = path
            self.paths.grow(new_paths.size)
            self._seen.grow(table.n)
        table["seen_at"][session] = now
        if len(registry.clocks) > nodes.n or nodes.unbased:
            self._enter_clocks(x, session, nodes, bus_at_ns)
        return session

    def _enter_clocks(self, x: Exchanges, session: Int64s, nodes: Nodes, bus_at_ns: int) -> None:
        """A clock's base: its first stamp stands for the bus time of its message. Until then: as if it were right."""
        src, dst = self.sessions["clock_src"][session], self.sessions["clock_dst"][session]
        nodes.grow(len(self.registry.clocks))
        for clock in nodes.without_base():
            for end, stamps in ((src, x.t4_ns), (src, x.t1_ns), (dst, x.t2_ns)):
                rows = np.flatnonzero((end == clock) & (stamps != ABSENT_NS))
                if rows.size:
                    nodes.set_base(clock, int(stamps[rows[0]]) - bus_at_ns)
                    break

    def degree(self, clocks: int) -> Float64s:
        """Neighbours of each clock, at least 1; counted anew when sessions come or go."""
        table = self.sessions
        if self._degree.size != clocks or self._counted != table.n:
            a, b = table["clock_src"], table["clock_dst"]
            keys = np.unique((np.minimum(a, b) << 32) | np.maximum(a, b))
            low, high = keys >> 32, keys & 0xFFFFFFFF
            count = np.bincount(low[low != high], minlength=clocks) + np.bincount(high[low != high], minlength=clocks)
            self._degree, self._counted = np.maximum(count, 1).astype(np.float64), table.n
        return self._degree

    def repeats(self, session: Int64s, x: Exchanges) -> Bools:
        """Rows that were there before."""
        repeat = self._seen.repeats(session, x.seq, x.t1_ns)
        self._counters.add("repeated", n=int(repeat.sum()))
        return repeat

    def silent(self, before: float) -> tuple[Bools, Bools] | None:
        """Masks of the sessions and clocks to keep; None unless some, but not all, have been silent since `before`."""
        keep = self.sessions["seen_at"] >= before
        if keep.all() or not keep.any():
            return None
        clocks = np.zeros(len(self.registry.clocks), dtype=np.bool_)
        for end in ("clock_src", "clock_dst"):
            clocks[self.sessions[end][keep]] = True
        return keep, clocks

    def forget(self, keep: Bools, clocks: Bools) -> Int64s:
        """Drop what the masks do not keep; returns the old numbers of the kept paths, ascending."""
        table = self.sessions
        self._counters.add("forgotten", "sessions", int((~keep).sum()))
        self._counters.add("forgotten", "clocks", int((~clocks).sum()))
        old_pairs, old_paths = self.registry.forget(keep, clocks)
        self._seen.keep(keep)
        self._counted = -1
        table.keep(keep)
        self.ring.keep(keep)
        number = np.cumsum(clocks) - 1
        table["pair"] = np.searchsorted(old_pairs, table["pair"])
        table["path"] = np.searchsorted(old_paths, table["path"])
        for end in ("clock_src", "clock_dst"):
            table[end] = number[table[end]]
        kept = np.zeros(self.paths.n, dtype=np.bool_)
        kept[old_paths] = True
        self.paths.keep(kept)
        return old_paths

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "registry": self.registry.state(),
            "sessions": self.sessions.state(),
            "paths": self.paths.state(),
            "ring": self.ring.state(),
            "seen": self._seen.state(self.sessions.n),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.registry.load(state["registry"])
        self.sessions.load(state["sessions"])
        self.paths.load(state["paths"])
        self.ring.load(state["ring"])
        self._seen.load(state["seen"])
        self._counted = -1
