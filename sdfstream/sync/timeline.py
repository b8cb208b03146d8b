"""The state of the one timeline and the order of its work; `stage` feeds it, the other modules do the parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import TICK_NS, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync import edges, mesh, publish
from sdfstream.sync.agree import agree, faulty
from sdfstream.sync.blocks import blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.correct import Rows, correct, pair_err
from sdfstream.sync.delays import DelayBook
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.lag import NEAR_NS, Lag
from sdfstream.sync.nodes import Nodes
from sdfstream.sync.roster import Roster
from sdfstream.sync.smoother import TICKS_PER_PASS, Past, Smoothed, Smoother

_TICKS_PER_SWEEP = 100


class Timeline:
    """Clocks, sessions and open windows.

    Internal time is ns since `origin` on the ensemble's scale (`nodes`), which runs near bus time minus the lag.
    """

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._roster = Roster(counters)
        self._nodes = Nodes(config)
        self._book = DelayBook(config, counters)
        self._lag = Lag()
        self._smoother = Smoother(
            config.lag_ns, np.array(config.wander_ppb), np.array(config.phase_wander_ns), config.skew_limit_ppb
        )
        nothing = np.empty(0)
        self._past = Past(0.0, nothing, nothing, nothing, nothing)
        self._pending: list[Rows] = []
        self._origin_ns = 0
        self._reference = 0
        self._ticks = 0

    def begin(self, bus_at_ns: int) -> None:
        """The first message's instant becomes the origin of internal time."""
        self._origin_ns = bus_at_ns

    def take(self, x: Exchanges, bus_at_ns: int) -> None:
        """Accepted rows: number their sessions, drop repeats, correct, and let them wait for tick and window."""
        nodes, roster, elapsed = self._nodes, self._roster, float(bus_at_ns - self._origin_ns)
        session = roster.number(x, nodes, bus_at_ns, elapsed)
        repeat = roster.repeats(session, x)
        if repeat.any():
            x, session = x.pick(~repeat), session[~repeat]
        if not session.size:
            return
        table = roster.sessions
        rows = correct(x, session, table["clock_src"][session], table["clock_dst"][session], nodes, self._origin_ns)
        self._counters.add("unanswered", n=int(x.lost.sum()))
        self._lag.see(elapsed - rows.newest)
        self._pending.append(rows)
        err = pair_err(rows, nodes.independent(), self._config.err_sigmas)
        self._book.put(x, rows, table["path"][session], err, self._reading(rows.at), self._present(bus_at_ns))

    def _reading(self, at: Float64s | float) -> Any:
        return self._book.reference_ns(self._nodes, self._reference, self._origin_ns, at)

    def _present(self, bus_at_ns: int) -> int:
        """The reference clock's reading now, as far as evidence has come: bus time less the lag."""
        return int(self._reading(np.float64(bus_at_ns - self._origin_ns - self._lag.value)))

    def close(self, bus_at_ns: int) -> list[Output]:
        """Close the windows that are late enough at this bus time."""
        return self._book.close(self._present(bus_at_ns), self._roster) if self._nodes.n else []

    def close_all(self) -> list[Output]:
        """Close every window that holds rows."""
        return self._book.close_all(self._roster)

    def tick(self, bus_at_ns: int) -> list[Output]:
        """100 ms of bus time have passed: learn from what came, publish every clock's causal row."""
        self._lag.turn()
        nodes = self._nodes
        if not nodes.n:
            return []
        self._ticks += 1
        now = bus_at_ns - self._origin_ns - self._lag.value
        self._smoother.begin(nodes)
        self._learn(now)
        self._smoother.push(self._past)
        self._choose_reference()
        out = [Output(CLOCK.name, "mesh", self._causal(now))]
        if self._ticks % TICKS_PER_PASS == 0:
            out += self._smoothed(self._smoother.due(nodes))
        out += self._book.rewound(self._present(bus_at_ns), self._roster)
        out += self.close(bus_at_ns)
        if self._ticks % _TICKS_PER_SWEEP == 0:
            self._sweep(float(bus_at_ns - self._origin_ns))
        return out

    def _learn(self, now: float) -> None:
        """Pending rows to blocks, blocks to messages, messages to news about the clocks.

        The state is moved to the rows' mean instant, not to the present: a skew error would else show as an offset.
        """
        nodes, table = self._nodes, self._roster.sessions
        rows = self._waiting(now)
        at = float(np.minimum(rows.at, now).mean()) if rows.at.size else min(now, nodes.at + TICK_NS)
        nodes.advance(max(at, nodes.at))
        nothing = np.zeros(nodes.n)
        self._past = Past(nodes.at, nothing, nothing + np.inf, nothing, nothing)
        t, ring = nodes.table, self._roster.ring
        ring.turn(nodes.at, t["skew"][table["clock_dst"]] - t["skew"][table["clock_src"]])
        if not rows.at.size:
            nodes.tie(*edges.heard_lately(table, nodes.at - self._config.holdover_after_ns), self._reference)
            return
        floor = np.where(np.isfinite(table["d"]), table["d"], 0.0)
        b = blocks(rows.session, rows.at, rows.fwd, rows.rev, floor)
        table["heard_at"][b.session] = nodes.at
        nodes.tie(*edges.heard_lately(table, nodes.at - self._config.holdover_after_ns), self._reference)
        src, dst = table["clock_src"][b.session], table["clock_dst"][b.session]
        walks = (*nodes.wanders(), nodes.independent_skew(), nodes.independent())
        degree = self._roster.degree(nodes.n)
        phase, frequency, skew, offset = (v[src] + v[dst] for v in walks)
        wander = edges.Wander(phase, frequency, skew, offset, 2.0 / (degree[src] + degree[dst]))
        ahead, slope = t["offset"][dst] - t["offset"][src], t["skew"][dst] - t["skew"][src]
        heard, breaks = edges.listen(table, ring, b, ahead, slope, wander, nodes.at, self._config)
        if breaks.session.size:
            self._doubt(breaks.session, breaks.size, b.session)
        self._agree(heard)

    def _waiting(self, now: float) -> Rows:
        """Answered rows since the last tick; one older than `NEAR_NS`, or as far ahead, teaches nothing (counted)."""
        pending, self._pending = self._pending, []
        if not pending:
            nothing = np.empty(0)
            none = np.empty(0, dtype=np.int64)
            return Rows(none, nothing, nothing, nothing, nothing, none, none)
        rows = pending[0] if len(pending) == 1 else Rows._make(map(np.concatenate, zip(*pending, strict=True)))
        unknown = self._nodes.table["variance"][rows.clock_src] > NEAR_NS**2
        near = (np.abs(rows.at - now) < NEAR_NS) | unknown
        self._counters.add("not-learned", "stale", int((~near).sum()))
        use = near & ~(np.isnan(rows.fwd) & np.isnan(rows.rev))
        return rows if use.all() else Rows._make(column[use] for column in rows)

    def _agree(self, heard: edges.Messages) -> None:
        """Fuse what the sessions say over the mesh, and let the clocks take it in."""
        nodes, table, ticks = self._nodes, self._roster.sessions, self._roster.ring.ticks
        m = agree(nodes, table, ticks)
        if m is None:
            return
        z = nodes.table["offset"] + m.value - nodes.table["skew"] * m.age_s
        self._past = self._past._replace(z=z, variance=m.variance, age_s=m.age_s)
        nodes.update(m)
        a, b = table["clock_src"][heard.session], table["clock_dst"][heard.session]
        count = np.bincount(a, minlength=nodes.n) + np.bincount(b, minlength=nodes.n)
        nodes.heard(np.where(m.news > 0.0, count, 0), m.each)
        live = np.flatnonzero(table["said"] >= ticks - 10)
        src, dst = table["clock_src"][live], table["clock_dst"][live]
        nodes.judged(mesh.misfit(src, dst, table["misfit"][live], nodes.n))
        nodes.accuse(faulty(table, nodes, ticks, self._config.faulty_ns))

    def _doubt(self, tripped: Int64s, size: Float64s, heard: Int64s) -> None:
        """Sessions' floors broke: a clock most of whose sessions say so has stepped."""
        nodes, table = self._nodes, self._roster.sessions
        step = mesh.stepped(nodes.n, (table["clock_src"], table["clock_dst"]), tripped, size, heard)
        self._past = self._past._replace(doubt=step)
        nodes.widen(step)
        self._counters.add("floors-broken", n=tripped.size)
        self._counters.add("clock-steps", n=int((step > 0.0).sum()))

    def _choose_reference(self) -> None:
        nodes = self._nodes
        alive = nodes.table["sampled_at"] >= nodes.at - self._config.holdover_after_ns
        if alive.any():
            self._reference = mesh.reference(nodes.label, alive, self._roster.registry.rank())
            nodes.mark_tied(self._reference)

    def _causal(self, now: float) -> pa.RecordBatch:
        """Every clock's state, carried forward to the present."""
        return self._rows(Smoothed(*self._nodes.at_instant(max(now, self._nodes.at))), publish.CAUSAL)

    def _smoothed(self, past: list[Smoothed]) -> list[Output]:
        """One message with the rows of several past ticks; a reference that joined since has no state there."""
        past = [p for p in past if p.offset.size > self._reference]
        if not past:
            return []
        rows = pa.Table.from_batches([self._rows(p, publish.SMOOTHED) for p in past]).combine_chunks()
        return [Output(CLOCK.name, "mesh", rows.to_batches()[0])]

    def flush(self) -> list[Output]:
        """Smoothed rows that still wait."""
        return self._smoothed(self._smoother.flush(self._nodes))

    def _rows(self, s: Smoothed, kind: int) -> pa.RecordBatch:
        """States of one instant, relative to the reference."""
        c, nodes, r, n = self._config, self._nodes, self._reference, s.offset.size
        t = nodes.table
        base = t["base_ns"][:n]
        err = c.err_sigmas * np.sqrt(nodes.variance_to(r, s.variance, kind == publish.SMOOTHED))
        err[r] = 0.0
        return publish.clock_rows(
            self._roster.registry.clocks,
            at_ns=base + self._origin_ns + np.rint(s.at + s.offset).astype(np.int64),
            offset_ns=(base - base[r]) + (s.offset - s.offset[r]),
            skew_ppb=s.skew - s.skew[r],
            err_ns=np.minimum(err, c.unknown_err_ns),
            n=np.rint(t["samples"][:n]).astype(np.int64),
            status=nodes.status(s.at, err),
            kind=kind,
        )

    def _sweep(self, elapsed: float) -> None:
        """Forget sessions and clocks that have been silent for long."""
        masks = self._roster.silent(elapsed - self._config.forget_ns)
        if masks is None:
            return
        keep, clocks = masks
        name = self._roster.registry.clocks[self._reference]
        self._book.renumber(self._roster.forget(keep, clocks))
        self._nodes.keep(clocks)
        self._smoother.keep(clocks)
        names = self._roster.registry.clocks
        self._reference = names.index(name) if name in names else 0

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "roster": self._roster.state(),
            "nodes": self._nodes.save(),
            "lag": self._lag.state(),
            "book": self._book.state(),
            "smoother": self._smoother.state(),
            "pending": [list(r) for r in self._pending],
            "origin_ns": self._origin_ns,
            "reference": self._reference,
            "ticks": self._ticks,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._roster.load(state["roster"])
        self._nodes.load(state["nodes"])
        self._lag.load(state["lag"])
        self._book.load(state["book"])
        self._smoother.load(state["smoother"])
        self._pending = [Rows._make(columns) for columns in state["pending"]]
        self._origin_ns = state["origin_ns"]
        self._reference = state["reference"]
        self._ticks = state["ticks"]
