"""Who is there: sessions, paths and clocks by number, entered at first sight and forgotten after long silence."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfstream.records.units import ABSENT_NS, Bools, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.belief import Beliefs
from sdfstream.sync.duplicates import Seen
from sdfstream.sync.floors import path_table
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.registry import Registry
from sdfstream.sync.sites import site_table


class Roster:
    """The tables whose rows are sessions and paths, and the names behind all numbers.

    Attributes
    ----------
    registry : Registry
    sessions, paths : Table
    hello : dict
        First stamp minus bus time of clocks that have no base yet, ns: the newest wins.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.registry = Registry()
        self.sessions = site_table()
        self.paths = path_table()
        self.hello: dict[str, int] = {}
        self._seen = Seen()

    def number(self, x: Exchanges, beliefs: Beliefs, bus_at_ns: int, now: float) -> Int64s:
        """Session of each row; new sessions, paths and clocks are entered. `now`: bus time since the origin."""
        registry, table = self.registry, self.sessions
        pair = np.array(registry.numbers(x.names), dtype=np.int64)[x.pair]
        rest = (x.dscp << 32) | x.path
        session, fresh = registry.sessions.slots((pair << 40) | rest)
        if fresh.size:
            start = table.n
            table.grow(fresh.size)
            pairs = pair[fresh]
            table["pair"][start:] = pairs
            table["clock_src"][start:] = registry.pair_clock_src[pairs]
            table["clock_dst"][start:] = registry.pair_clock_dst[pairs]
            path, new_paths = registry.paths.slots((registry.pair_route[pairs] << 40) | rest[fresh])
            table["path"][start:] = path
            self.paths.grow(new_paths.size)
            self._seen.grow(table.n)
        table["seen_at"][session] = now
        if len(registry.clocks) > beliefs.n or beliefs.unbased:
            self._greet(x, session, beliefs, bus_at_ns)
        return session

    def _greet(self, x: Exchanges, session: Int64s, beliefs: Beliefs, bus_at_ns: int) -> None:
        """Note the newest stamp of every clock that the mesh has not given a base yet."""
        missing = len(self.registry.clocks) - beliefs.n
        if missing > 0:
            beliefs.table.grow(missing)
        src, dst = self.sessions["clock_src"][session], self.sessions["clock_dst"][session]
        for clock in np.flatnonzero(~beliefs.table["based"]).tolist():
            name = self.registry.clocks[clock]
            for end, stamps in ((src, x.t4_ns), (src, x.t1_ns), (dst, x.t2_ns)):
                rows = (end == clock) & (stamps != ABSENT_NS)
                if rows.any():
                    base = int(stamps[rows].max()) - bus_at_ns
                    self.hello[name] = max(base, self.hello.get(name, base))

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
        table.keep(keep)
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
            "hello": self.hello,
            "seen": self._seen.state(self.sessions.n),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.registry.load(state["registry"])
        self.sessions.load(state["sessions"])
        self.paths.load(state["paths"])
        self.hello = {name: int(base) for name, base in state["hello"].items()}
        self._seen.load(state["seen"])
