"""Everything that belongs to a share of the sending hosts: sessions, their edge filters, and their windows of delay."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.records.fabric import host_of
from sdfstream.records.hostclock import HOST_EDGE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import ANOMALY
from sdfstream.records.units import Int64s
from sdfstream.stats import Counters
from sdfstream.sync.bustime import NewestLag, Spread
from sdfstream.sync.clocks import MeshClocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.delays import NO_PATH, DelayBook
from sdfstream.sync.edgework import EdgeWork
from sdfstream.sync.estimates import COLUMNS, ClockEstimates, NamedEstimates, correct, pair_err
from sdfstream.sync.intake import AcceptedExchanges
from sdfstream.sync.meshwork import TickReport
from sdfstream.sync.registry import Roster

_TICKS_PER_SWEEP: Final = 100


class HostWork:
    """Rows in; corrected delays out; a `TickReport` at every tick, after which the mesh's estimates are adopted."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._c = config
        self._counters = counters
        self._roster = Roster(counters)
        self._edges = EdgeWork(config, counters, self._roster)
        self._book = DelayBook(config, counters)
        self._estimates = ClockEstimates()
        self._usual_ns2 = 0.0
        self._newest_lag = NewestLag()
        self._spread = Spread()
        self._ticks = 0
        self._mesh_estimates: NamedEstimates | None = None
        """The last estimates of all clocks, where the mesh is another process: for clocks that come in between."""
        self._advanced_to: list[float] = []
        """Internal times (ns) to which the estimates were predicted since."""
        self._known: tuple[list[str], int, Int64s] | None = None

    def take(self, x: AcceptedExchanges) -> None:
        """Accepted rows: number their sessions, drop repeats, correct, and let them wait for tick and window.

        Rows of a clock that the mesh has not taken up yet (its first 100 ms) can be neither corrected nor learned from.
        """
        b, roster = self._estimates, self._roster
        had = b.table.rows
        session = roster.number(x, b)
        if self._mesh_estimates is not None and b.table.rows > had:
            self._catch_up(self._mesh_estimates, had)
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
        lag_ns = (x.bus_at_ns - b.origin_ns) - rows.newest
        near = self._newest_lag.add(lag_ns, b.lag_ns)
        self._spread.add(lag_ns[near], x.message[near])
        self._edges.put(rows)
        err = pair_err(rows, b.table["bound_ns2"], self._c.err_sigmas)
        path = np.where(x.host, NO_PATH, table["path"][session])
        self._book.put(x, rows, path, err, b.reference_ns(rows.at_ns), self._at(x.bus_at_ns))

    def _now(self, bus_at_ns: int) -> int:
        """The reference clock's reading now, as far as evidence has come: bus time less the lag."""
        return int(self._at(np.int64(bus_at_ns)))

    def _at(self, bus_at_ns: Any) -> Any:
        b = self._estimates
        return b.reference_ns((bus_at_ns - b.origin_ns) - b.lag_ns)

    def tick(self, bus_at_ns: int, number: int) -> TickReport:
        """Report of the sessions about this tick. `number` counts ticks, alike in all processes."""
        b = self._estimates
        self._ticks = number
        at = max(float(bus_at_ns - b.origin_ns) - b.lag_ns, b.at_ns)
        new_bases_ns, self._roster.new_bases_ns = self._roster.new_bases_ns, {}
        lag = self._newest_lag.end_tick()
        self._spread.end_tick()
        edges = self._edges.tick(b, at, self._usual_ns2, number)
        if self._mesh_estimates is not None:
            self._advanced_to.append(at)
        return TickReport(self._roster.registry.clocks, edges, new_bases_ns, lag)

    @property
    def estimates(self) -> ClockEstimates:
        """Estimates of the clocks here, by their numbers in a report."""
        return self._estimates

    def begin(self, origin_ns: int) -> None:
        """Set the origin of internal time, until the mesh reports its own."""
        self._estimates.origin_ns = origin_ns

    def adopt_named(self, named: NamedEstimates, usual_ns2: float) -> None:
        """Adopt the estimates of a mesh in another process."""
        if self._mesh_estimates is None:
            # nothing was learned yet
            self._roster.sessions["seen_at_ns"] -= named.estimates.origin_ns - self._estimates.origin_ns
        self._mesh_estimates, self._advanced_to = named, []
        self.adopt(named, usual_ns2)

    def foreign(self, named: NamedEstimates) -> bool:
        """Whether these estimates are on another time line than before: another origin, or other bases."""
        if self._mesh_estimates is None:
            return False
        of = self._numbers(self._roster.registry.clocks, named.names)
        mine, t, theirs = np.flatnonzero(of >= 0), self._estimates.table, named.estimates.table
        both = t["based"][mine] & theirs["based"][of[mine]]
        moved = t["base_ns"][mine] != theirs["base_ns"][of[mine]]
        return named.estimates.origin_ns != self._estimates.origin_ns or bool((both & moved).any())

    def _catch_up(self, named: NamedEstimates, start: int) -> None:
        """Clocks from `start` on are new here: adopt their estimates, predicted as the others were."""
        of = self._numbers(self._roster.registry.clocks, named.names)[start:]
        mine = np.flatnonzero(of >= 0)
        few = ClockEstimates()
        few.table.grow(mine.size)
        for name in COLUMNS:
            few.table[name] = named.estimates.table[name][of[mine]]
        few.at_ns = named.estimates.at_ns
        for at in self._advanced_to:
            few.advance(at)
        for name in COLUMNS:
            self._estimates.table[name][start + mine] = few.table[name]

    def adopt(self, clocks: MeshClocks | NamedEstimates, usual_ns2: float) -> None:
        """Adopt the mesh's estimates."""
        b, named = self._estimates, clocks.estimates
        names = self._roster.registry.clocks
        b.origin_ns, b.at_ns, b.lag_ns, b.reference_state = (
            named.origin_ns,
            named.at_ns,
            named.lag_ns,
            named.reference_state,
        )
        b.solved_at_ns = named.at_ns
        self._usual_ns2 = usual_ns2
        if not clocks.n:
            return
        of = self._numbers(names, clocks.names)
        mine = np.flatnonzero(of >= 0)
        if len(names) > b.table.rows:
            b.table.grow(len(names) - b.table.rows)
        for name in COLUMNS:
            b.table[name][mine] = named.table[name][of[mine]]

    def _numbers(self, names: list[str], mesh_names: list[str]) -> Int64s:
        """The mesh's number of each clock here; −1: not known there."""
        if self._known is None or self._known[0] is not mesh_names or self._known[1] != len(names):
            number = {name: k for k, name in enumerate(mesh_names)}
            of = np.array([number.get(name, -1) for name in names], dtype=np.int64)
            self._known = (mesh_names, len(names), of)
        return self._known[2]

    def end_tick(self, bus_at_ns: int) -> list[Output]:
        """After a tick: windows that are due, and what has been silent for long."""
        if not self._estimates.table.rows:
            return []
        out = self._rerouted(bus_at_ns)
        out += self._book.rewound(self._now(bus_at_ns), self._roster)
        out += self.close(bus_at_ns)
        if self._ticks % _TICKS_PER_SWEEP == 0:
            self._sweep(float(bus_at_ns - self._estimates.origin_ns))
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
        b = self._estimates
        if not b.table.rows:
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
        self._estimates.table.keep(clocks)
        self._known = None

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "roster": self._roster.snapshot(),
            "edges": self._edges.snapshot(),
            "book": self._book.snapshot(),
            "estimates": self._estimates.snapshot(),
            "usual": self._usual_ns2,
            "newest_lag": self._newest_lag.snapshot(),
            "spread": self._spread.snapshot(),
            "ticks": self._ticks,
            "mesh_estimates": None if self._mesh_estimates is None else self._mesh_estimates.snapshot(),
            "since": self._advanced_to,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._roster.restore(state["roster"])
        self._edges.restore(state["edges"])
        self._book.restore(state["book"])
        self._estimates.restore(state["estimates"])
        self._usual_ns2 = float(state["usual"])
        self._newest_lag.restore(state["newest_lag"])
        self._spread.restore(state["spread"])
        self._ticks = int(state["ticks"])
        self._mesh_estimates = None if state["mesh_estimates"] is None else NamedEstimates.of(state["mesh_estimates"])
        self._advanced_to = [float(at) for at in state["since"]]
        self._known = None
