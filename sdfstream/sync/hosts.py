"""Everything that belongs to a share of the sending hosts: sessions, their sites, and their windows of delay."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.fabric import host_of
from sdfstream.records.hostclock import HOST_EDGE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import ANOMALY
from sdfstream.records.units import Int64s
from sdfstream.stats import Counters
from sdfstream.sync.bustime import NEAR_NS, Spread
from sdfstream.sync.clocks import Clocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.delays import NO_PATH, DelayBook
from sdfstream.sync.edgework import EdgeWork
from sdfstream.sync.estimates import COLUMNS, Beliefs, Told, correct, pair_err
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.meshwork import Report
from sdfstream.sync.registry import Roster

_TICKS_PER_SWEEP: Final = 100


class HostWork:
    """Rows in; corrected delays out; a `Report` for the mesh at every tick, and its beliefs taken up after it."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._c = config
        self._counters = counters
        self._roster = Roster(counters)
        self._edges = EdgeWork(config, counters, self._roster)
        self._book = DelayBook(config, counters)
        self._beliefs = Beliefs()
        self._usual = 0.0
        self._newest_lag = np.inf
        self._spread = Spread()
        self._ticks = 0
        self._told: Told | None = None
        """What the mesh said last of all clocks, where it is another process: for clocks that come in between."""
        self._since: list[float] = []
        """Internal times to which the beliefs were carried forward since."""
        self._known: tuple[list[str], int, Int64s] | None = None

    def take(self, x: Exchanges, bus_at_ns: int) -> None:
        """Accepted rows: number their sessions, drop repeats, correct, and let them wait for tick and window.

        Rows of a clock that the mesh has not taken up yet (its first 100 ms) can be neither corrected nor learned from.
        """
        b, roster = self._beliefs, self._roster
        elapsed = float(bus_at_ns - b.origin_ns)
        had = b.n
        session = roster.number(x, b, bus_at_ns, elapsed)
        if self._told is not None and b.n > had:
            self._catch_up(self._told, had)
        drop = roster.repeats(session, x)
        if b.unbased:
            based, table = b.table["based"], roster.sessions
            early = ~(based[table["clock_src"][session]] & based[table["clock_dst"][session]]) & ~drop
            self._counters.add("not-learned", "new-clock", int(early.sum()))
            drop = drop | early
        if drop.any():
            x, session = x.pick(~drop), session[~drop]
        if not session.size:
            return
        table = roster.sessions
        rows = correct(x, session, table["clock_src"][session], table["clock_dst"][session], b)
        self._counters.add("unanswered", n=int(x.lost.sum()))
        lag = elapsed - rows.newest
        lag = lag[np.abs(lag - b.lag_ns) < NEAR_NS]
        if lag.size:
            self._newest_lag = min(self._newest_lag, float(lag.min()))
            self._spread.see(lag)
        self._edges.put(rows)
        err = pair_err(rows, b.table["bound"], self._c.err_sigmas)
        path = np.where(x.host, NO_PATH, table["path"][session])
        self._book.put(x, rows, path, err, self._book.reference_ns(b, rows.at), self._now(bus_at_ns))

    def _now(self, bus_at_ns: int) -> int:
        """The reference clock's reading now, as far as evidence has come: bus time less the lag."""
        b = self._beliefs
        return int(self._book.reference_ns(b, np.float64(bus_at_ns - b.origin_ns - b.lag_ns)))

    def tick(self, bus_at_ns: int, number: int) -> Report:
        """What the sessions say about this tick. `number` counts ticks, alike in all parts."""
        b = self._beliefs
        self._ticks = number
        at = max(float(bus_at_ns - b.origin_ns) - b.lag_ns, b.at)
        hello, self._roster.hello = self._roster.hello, {}
        lag, self._newest_lag = self._newest_lag, np.inf
        self._spread.turn()
        edges = self._edges.tick(b, at, self._usual, number)
        if self._told is not None:
            self._since.append(at)
        return Report(self._roster.registry.clocks, edges, hello, lag)

    @property
    def beliefs(self) -> Beliefs:
        """What is believed of the clocks here, by their numbers in a report."""
        return self._beliefs

    def begin(self, origin_ns: int) -> None:
        """Origin of internal time until the mesh tells its own."""
        self._beliefs.origin_ns = origin_ns

    def hear(self, told: Told, usual: float) -> None:
        """Believe what a mesh in another process said."""
        if self._told is None:
            # nothing was learned yet
            self._roster.sessions["seen_at"] -= told.beliefs.origin_ns - self._beliefs.origin_ns
        self._told, self._since = told, []
        self.take_up(told, usual)

    def foreign(self, told: Told) -> bool:
        """Whether this mesh tells another time line than before: with its own origin, or other bases."""
        if self._told is None:
            return False
        of = self._numbers(self._roster.registry.clocks, told.names)
        mine, t, theirs = np.flatnonzero(of >= 0), self._beliefs.table, told.beliefs.table
        both = t["based"][mine] & theirs["based"][of[mine]]
        moved = t["base_ns"][mine] != theirs["base_ns"][of[mine]]
        return told.beliefs.origin_ns != self._beliefs.origin_ns or bool((both & moved).any())

    def _catch_up(self, told: Told, start: int) -> None:
        """Clocks from `start` on are new here: what the mesh said of them, carried forward as the others were."""
        of = self._numbers(self._roster.registry.clocks, told.names)[start:]
        mine = np.flatnonzero(of >= 0)
        few = Beliefs()
        few.table.grow(mine.size)
        for name in COLUMNS:
            few.table[name] = told.beliefs.table[name][of[mine]]
        few.at = told.beliefs.at
        for at in self._since:
            few.advance(at)
        for name in COLUMNS:
            self._beliefs.table[name][start + mine] = few.table[name]

    def take_up(self, clocks: Clocks | Told, usual: float) -> None:
        """Believe what the mesh found."""
        b, told = self._beliefs, clocks.beliefs
        names = self._roster.registry.clocks
        b.origin_ns, b.at, b.lag_ns, b.place = told.origin_ns, told.at, told.lag_ns, told.place
        b.solved_at = told.at
        self._usual = usual
        if not clocks.n:
            return
        of = self._numbers(names, clocks.names)
        mine = np.flatnonzero(of >= 0)
        if len(names) > b.n:
            b.table.grow(len(names) - b.n)
        for name in COLUMNS:
            b.table[name][mine] = told.table[name][of[mine]]

    def _numbers(self, names: list[str], mesh_names: list[str]) -> Int64s:
        """The mesh's number of each clock here; −1: not known there."""
        if self._known is None or self._known[0] is not mesh_names or self._known[1] != len(names):
            number = {name: k for k, name in enumerate(mesh_names)}
            of = np.array([number.get(name, -1) for name in names], dtype=np.int64)
            self._known = (mesh_names, len(names), of)
        return self._known[2]

    def turn(self, bus_at_ns: int) -> list[Output]:
        """After a tick: windows that are due, and what has been silent for long."""
        if not self._beliefs.n:
            return []
        out = self._rerouted(bus_at_ns)
        out += self._book.rewound(self._now(bus_at_ns), self._roster)
        out += self.close(bus_at_ns)
        if self._ticks % _TICKS_PER_SWEEP == 0:
            self._sweep(float(bus_at_ns - self._beliefs.origin_ns))
        return out

    def _rerouted(self, bus_at_ns: int) -> list[Output]:
        """An event for every path that this tick found longer or shorter."""
        registry, out = self._roster.registry, []
        for sessions, change_ns in self._edges.rerouted:
            for key, change in zip(registry.sessions.keys[sessions].tolist(), change_ns.tolist(), strict=True):
                src, dst, transport = registry.pairs[key >> 40][:3]
                if transport == HOST_EDGE:
                    continue
                data = {
                    "kind": "reroute",
                    "at_ns": self._now(bus_at_ns),
                    "src": src,
                    "dst": dst,
                    "transport": transport,
                    "path": key & 0xFFFFFFFF,
                    "dscp": (key >> 32) & 0xFF,
                    "change_ns": change,
                }
                name = f"{bus_at_ns}/{src}/{dst}/{transport}/{data['path']}/{data['dscp']}"
                out.append(Output(ANOMALY.name, host_of(src), Event(ANOMALY.name, "sync", name, bus_at_ns, data)))
        return sorted(out, key=lambda o: o.body.id if isinstance(o.body, Event) else "")

    def close(self, bus_at_ns: int) -> list[Output]:
        """Close the windows that have all rows which usually come by this bus time, or have waited long."""
        b = self._beliefs
        if not b.n:
            return []
        lateness_ns = min(self._c.lateness_ns, max(0.0, self._spread.value - b.lag_ns))
        return self._book.close(self._now(bus_at_ns) - int(lateness_ns), self._roster)

    def close_all(self) -> list[Output]:
        """Close every window that holds rows."""
        return self._book.close_all(self._roster)

    def _sweep(self, elapsed: float) -> None:
        """Forget sessions and clocks that have been silent for long."""
        masks = self._roster.silent(elapsed - self._c.forget_ns)
        if masks is None:
            return
        keep, clocks = masks
        self._edges.keep(keep)
        self._book.renumber(self._roster.forget(keep, clocks))
        self._beliefs.table.keep(clocks)
        self._known = None

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "roster": self._roster.snapshot(),
            "edges": self._edges.snapshot(),
            "book": self._book.snapshot(),
            "beliefs": self._beliefs.snapshot(),
            "usual": self._usual,
            "newest_lag": None if self._newest_lag == np.inf else self._newest_lag,
            "spread": self._spread.snapshot(),
            "ticks": self._ticks,
            "told": None if self._told is None else self._told.snapshot(),
            "since": self._since,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._roster.restore(state["roster"])
        self._edges.restore(state["edges"])
        self._book.restore(state["book"])
        self._beliefs.restore(state["beliefs"])
        self._usual = float(state["usual"])
        self._newest_lag = np.inf if state["newest_lag"] is None else float(state["newest_lag"])
        self._spread.restore(state["spread"])
        self._ticks = int(state["ticks"])
        self._told = None if state["told"] is None else Told.of(state["told"])
        self._since = [float(at) for at in state["since"]]
        self._known = None
