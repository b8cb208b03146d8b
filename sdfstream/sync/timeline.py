"""The state of the one timeline and the order of its work; `stage` feeds it, the other modules do the parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from sdfstream.numeric.graph import components
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync import edges, mesh, publish
from sdfstream.sync.blocks import blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.correct import Rows, correct, pair_err
from sdfstream.sync.duplicates import Seen
from sdfstream.sync.floors import excess, path_table
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.lag import Lag
from sdfstream.sync.nodes import Nodes
from sdfstream.sync.owd import Closed, Delays, Windows
from sdfstream.sync.registry import Pair, Registry
from sdfstream.sync.smoother import TICKS_PER_PASS, Past, Smoothed, Smoother


class Timeline:
    """Clocks, sessions and open windows."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._registry = Registry()
        self._nodes = Nodes(config)
        self._sessions = edges.session_table()
        self._paths = path_table()
        self._seen = Seen()
        self._lag = Lag()
        self._windows = Windows()
        self._smoother = Smoother(
            config.lag_ns, np.array(config.wander_ppb), np.array(config.phase_wander_ns), config.skew_limit_ppb
        )
        self._past: Past
        self._pending: list[Rows] = []
        self._origin_ns = 0
        self._reference = 0
        self._label: Int64s = np.empty(0, dtype=np.int64)
        self._ticks = 0

    def begin(self, bus_at_ns: int) -> None:
        """The first message's instant becomes the origin of internal time."""
        self._origin_ns = bus_at_ns

    # taking rows

    def take(self, x: Exchanges, bus_at_ns: int) -> None:
        """Accepted rows: number their sessions, drop repeats, correct, and let them wait for tick and window."""
        session = self._number(x, bus_at_ns)
        repeat = self._seen.repeats(session, x.seq, x.t1_ns)
        if repeat.any():
            self._counters.add("repeated", n=int(repeat.sum()))
        table = self._sessions
        rows = correct(
            x, session, table["clock_src"][session], table["clock_dst"][session], self._nodes, self._origin_ns
        )
        answered = ~np.isnan(rows.newest) & ~repeat
        self._counters.add("unanswered", n=int((x.lost & ~repeat).sum()))
        if answered.any():
            self._lag.see(float(bus_at_ns - self._origin_ns - rows.newest[answered].max()))
        if repeat.any():
            rows = Rows._make(column[~repeat] for column in rows)
            x = _without(x, repeat)
        if rows.session.size:
            self._pending.append(rows)
            self._wait(x, rows, bus_at_ns)

    def _number(self, x: Exchanges, bus_at_ns: int) -> Int64s:
        """Session of each row; new sessions, paths and clocks are entered."""
        registry = self._registry
        pair = np.array([registry.pair(Pair(*names)) for names in x.names], dtype=np.int64)[x.pair]
        rest = (x.dscp << 32) | x.path
        session, fresh = registry.sessions.slots((pair << 40) | rest)
        if fresh.size:
            table, start = self._sessions, self._sessions.n
            table.grow(fresh.size)
            pairs = pair[fresh]
            table["pair"][start:] = pairs
            table["clock_src"][start:] = registry.pair_clock_src[pairs]
            table["clock_dst"][start:] = registry.pair_clock_dst[pairs]
            path, new_paths = registry.paths.slots((registry.pair_route[pairs] << 40) | rest[fresh])
            table["path"][start:] = path
            self._paths.grow(new_paths.size)
            self._seen.grow(table.n)
        if len(registry.clocks) > self._nodes.n:
            self._enter_clocks(x, session, bus_at_ns)
        return session

    def _enter_clocks(self, x: Exchanges, session: Int64s, bus_at_ns: int) -> None:
        """A new clock's base: its first stamp stands for the bus time of its message."""
        src, dst = self._sessions["clock_src"][session], self._sessions["clock_dst"][session]
        bases = []
        for clock in range(self._nodes.n, len(self._registry.clocks)):
            first = int(np.argmax((src == clock) | (dst == clock)))
            stamps = (x.t4_ns, x.t1_ns) if src[first] == clock else (x.t2_ns, x.t1_ns)
            stamp = next(int(t[first]) for t in stamps if t[first] != ABSENT_NS)
            bases.append(stamp - bus_at_ns)
        self._nodes.add(np.array(bases, dtype=np.int64))
        self._label = np.arange(self._nodes.n)

    # windows

    def _reference_ns(self, at: Float64s | float) -> Any:
        """Reference clock's reading at internal time `at`, ns since the epoch."""
        t = self._nodes.table
        r = self._reference
        away = t["offset"][r] + t["skew"][r] / NS_PER_S * (at - self._nodes.at)
        return np.rint(at + away).astype(np.int64) + (t["base_ns"][r] + self._origin_ns)

    def _newest_window(self, bus_at_ns: int) -> int:
        now = np.float64(bus_at_ns - self._origin_ns - self._lag.value)
        return int(self._reference_ns(now)) // self._config.window_ns

    def _wait(self, x: Exchanges, rows: Rows, bus_at_ns: int) -> None:
        c = self._config
        reference_ns = self._reference_ns(rows.at)
        err = pair_err(rows, mesh.independent(self._nodes.table["variance"], self._label), c.err_sigmas)
        now = np.float64(bus_at_ns - self._origin_ns - self._lag.value)
        wide = err > c.publish_err_ns
        old = now - rows.at > c.max_late_ns
        hold = wide | old
        self._counters.add("owd-withheld", "unsynced", int((wide & ~x.lost & ~old).sum()))
        self._counters.add("owd-withheld", "stale", int(old.sum()))
        fwd, rev = rows.fwd, rows.rev
        if hold.any():
            fwd, rev = np.where(hold, np.nan, fwd), np.where(hold, np.nan, rev)
        path = self._sessions["path"][rows.session]
        delays = Delays(
            reference_ns // c.window_ns, path, fwd, rev, err, x.lost & ~old, x.ce_fwd & ~old, x.ce_rev & ~old
        )
        self._windows.put(delays, self._newest_window(bus_at_ns))

    def close(self, bus_at_ns: int) -> list[Output]:
        """Close the windows that are late enough at this bus time."""
        c = self._config
        if not self._nodes.n:
            return []
        now = np.float64(bus_at_ns - self._origin_ns - self._lag.value)
        until = (int(self._reference_ns(now)) - c.lateness_ns) // c.window_ns - 1
        if self._windows.closed is not None and until <= self._windows.closed:
            return []
        return self._publish(self._windows.close(until))

    def close_all(self) -> list[Output]:
        """Close every window that holds rows."""
        newest = self._windows.newest()
        return [] if newest is None else self._publish(self._windows.close(newest))

    def _publish(self, closed: list[Closed]) -> list[Output]:
        c = self._config
        out: list[Output] = []
        for w in closed:
            if not w.path.size:
                continue
            over = excess(self._paths, w.path, w.dir, w.low, w.p50, w.window * c.window_ns, c.floor_memory_ns)
            out += publish.owd_outputs(w, over, self._registry.routes, self._registry.paths.keys, c.window_ns)
            self._counters.add("published", "owd", int(w.path.size))
        return out

    # ticks

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
        out += self.close(bus_at_ns)
        return out

    def _learn(self, now: float) -> None:
        """Pending rows to blocks, blocks to messages, messages to news about the clocks.

        The state is moved to the rows' mean instant, not to the present: a skew error would else show as an offset.
        """
        nodes, table = self._nodes, self._sessions
        session, at, fwd, rev = self._waiting()
        nodes.advance(max(float(at.mean()) if at.size else min(now, nodes.at + TICK_NS), nodes.at))
        nothing = np.zeros(nodes.n)
        self._past = Past(nodes.at, nothing, nothing + np.inf, nothing)
        if not at.size:
            return
        b = blocks(session, at, fwd, rev, table["d"])
        table["heard_at"][b.session] = nodes.at
        src, dst = table["clock_src"][b.session], table["clock_dst"][b.session]
        self._tie(src, dst)
        variance = mesh.independent(nodes.table["variance"], self._label)
        prior = np.where(src == dst, 1.0, variance[src] + variance[dst])
        skew = mesh.independent(nodes.table["skew_variance"], self._label)
        aside = (skew[src] + skew[dst]) * ((b.at - nodes.at) / NS_PER_S) ** 2
        heard = edges.listen(table, b, prior, np.where(src == dst, 0.0, aside), nodes.at, self._config)
        if heard.tripped.size:
            self._doubt(heard.tripped, heard.size, b.session)
        self._agree(heard)

    def _waiting(self) -> tuple[Int64s, Float64s, Float64s, Float64s]:
        """Session, instant and delays of the answered rows since the last tick."""
        if not self._pending:
            nothing = np.empty(0)
            return np.empty(0, dtype=np.int64), nothing, nothing, nothing
        rows = (
            self._pending[0]
            if len(self._pending) == 1
            else Rows._make(map(np.concatenate, zip(*self._pending, strict=True)))
        )
        self._pending = []
        measured = ~np.isnan(rows.fwd)
        if not measured.all():
            rows = Rows._make(column[measured] for column in rows)
        return rows.session, rows.at, rows.fwd, rows.rev

    def _agree(self, heard: edges.Messages) -> None:
        """Fuse the sessions' messages over the mesh; tell the sessions what came of it."""
        nodes, table = self._nodes, self._sessions
        src, dst = table["clock_src"], table["clock_dst"]
        before = nodes.table["offset"].copy()
        a, b = src[heard.session], dst[heard.session]
        apart = a != b
        if apart.any():
            e = mesh.edges(a[apart], b[apart], heard.precision[apart], heard.shift[apart])
            delta, doubt = mesh.news(e, nodes.table["variance"], self._label)
            self._past = self._past._replace(z=nodes.table["offset"] + delta, variance=doubt)
            nodes.update(delta, doubt)
            nodes.heard(np.bincount(a[apart], minlength=nodes.n) + np.bincount(b[apart], minlength=nodes.n))
        moved = nodes.table["offset"] - before
        variance = mesh.independent(nodes.table["variance"], self._label)
        edges.settle(table, heard, moved[dst] - moved[src], np.where(src == dst, 1.0, variance[src] + variance[dst]))

    def _doubt(self, tripped: Int64s, size: Float64s, heard: Int64s) -> None:
        """Sessions' floors broke: a clock most of whose sessions say so has stepped."""
        nodes, table = self._nodes, self._sessions
        ends = table["clock_src"], table["clock_dst"]
        of = sum(np.bincount(end[heard], minlength=nodes.n) for end in ends)
        broken = sum(np.bincount(end[tripped], minlength=nodes.n) for end in ends)
        share = broken / np.maximum(of, 1)
        step = np.zeros(nodes.n)
        src, dst = (end[tripped] for end in ends)
        for clock, other in ((src, dst), (dst, src)):
            guilty = (share[clock] > 0.5) & (share[clock] >= share[other])
            np.maximum.at(step, clock[guilty], size[guilty])
        self._past = self._past._replace(doubt=step)
        nodes.widen(step)
        self._counters.add("floors-broken", n=tripped.size)
        self._counters.add("clock-steps", n=int((step > 0.0).sum()))

    def _tie(self, src: Int64s, dst: Int64s) -> None:
        """Components by the sessions heard lately; an island that meets the mesh doubts its own time line."""
        nodes, table = self._nodes, self._sessions
        fresh = (table["heard_at"] >= nodes.at - self._config.holdover_after_ns) & np.isfinite(table["d_variance"])
        a = np.concatenate([table["clock_src"][fresh], src])
        b = np.concatenate([table["clock_dst"][fresh], dst])
        label = components(nodes.n, a, b)
        if not np.array_equal(label, self._label):
            strangers = mesh.strangers(self._label, label, self._reference)
            nodes.disown(strangers)
            self._label = label
        nodes.table["tied_at"][label == label[self._reference]] = nodes.at

    def _choose_reference(self) -> None:
        nodes = self._nodes
        alive = nodes.table["sampled_at"] >= nodes.at - self._config.holdover_after_ns
        if alive.any():
            names = self._registry.clocks
            rank = np.argsort(np.argsort(np.array(names)))
            self._reference = mesh.reference(self._label, alive, rank)

    def _causal(self, now: float) -> pa.RecordBatch:
        """Every clock's state, carried forward to the present."""
        return self._rows(Smoothed(*self._nodes.at_instant(max(now, self._nodes.at))), kind=0)

    def _smoothed(self, past: list[Smoothed]) -> list[Output]:
        """One message with the rows of several past ticks; a reference that joined since has no state there."""
        past = [p for p in past if p.offset.size > self._reference]
        if not past:
            return []
        rows = pa.Table.from_batches([self._rows(p, kind=1) for p in past]).combine_chunks()
        return [Output(CLOCK.name, "mesh", rows.to_batches()[0])]

    def flush(self) -> list[Output]:
        """Smoothed rows that still wait."""
        return self._smoothed(self._smoother.flush(self._nodes))

    def _rows(self, s: Smoothed, kind: int) -> pa.RecordBatch:
        """States of one instant, relative to the reference."""
        c, t, r, n = self._config, self._nodes.table, self._reference, s.offset.size
        base = t["base_ns"][:n]
        variance = mesh.independent(s.variance, self._label[:n])
        err = c.err_sigmas * np.sqrt(variance + variance[r])
        err[r] = 0.0
        fresh = t["sampled_at"][:n] >= s.at - c.holdover_after_ns
        clocks = np.arange(n)
        return publish.clock_rows(
            self._registry.clocks,
            clocks,
            at_ns=base + self._origin_ns + np.rint(s.at + s.offset).astype(np.int64),
            offset_ns=(base - base[r]) + (s.offset - s.offset[r]),
            skew_ppb=s.skew - s.skew[r],
            err_ns=np.minimum(err, c.unknown_err_ns),
            n=np.rint(t["samples"][:n]).astype(np.int64),
            status=np.where(err > c.unsynced_err_ns, 2, np.where(fresh, 0, 1)),
            kind=np.full(n, kind),
        )

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "registry": self._registry.state(),
            "nodes": self._nodes.save(),
            "sessions": self._sessions.state(),
            "paths": self._paths.state(),
            "seen": self._seen.state(self._sessions.n),
            "lag": self._lag.state(),
            "windows": self._windows.state(),
            "smoother": self._smoother.state(),
            "pending": [list(r) for r in self._pending],
            "origin_ns": self._origin_ns,
            "reference": self._reference,
            "label": self._label,
            "ticks": self._ticks,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._registry.load(state["registry"])
        self._nodes.load(state["nodes"])
        self._sessions.load(state["sessions"])
        self._paths.load(state["paths"])
        self._seen.load(state["seen"])
        self._lag.load(state["lag"])
        self._windows.load(state["windows"])
        self._smoother.load(state["smoother"])
        self._pending = [Rows._make(columns) for columns in state["pending"]]
        self._origin_ns = state["origin_ns"]
        self._reference = state["reference"]
        self._label = state["label"]
        self._ticks = state["ticks"]


def _without(x: Exchanges, drop: Any) -> Exchanges:
    keep = ~drop
    fields = {k: getattr(x, k)[keep] for k in Exchanges.__slots__ if k != "names"}
    return Exchanges(names=x.names, **fields)
