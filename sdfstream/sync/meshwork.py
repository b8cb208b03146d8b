"""The work on all clocks together: reduced edges in, beliefs and published states out, once per tick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.records.hostclock import UTC
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync import mesh, publish
from sdfstream.sync.bustime import Lag
from sdfstream.sync.clocks import Clocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.mesh import reach, solve
from sdfstream.sync.reduce import Edges, empty
from sdfstream.sync.reference import Bank, Reference
from sdfstream.sync.smoother import TICKS_PER_PASS, Smoothed, Smoother
from sdfstream.sync.utc import UtcTie

_TICKS_PER_REACH: Final = 10
_TICKS_PER_SWEEP: Final = 100


class Report(NamedTuple):
    """What one part of the edge work says about a tick."""

    clocks: list[str]
    """Names behind the clock numbers in `edges`."""
    edges: Edges
    hello: dict[str, int]
    """First stamp minus bus time of clocks that have no base yet, ns."""
    lag_ns: float
    """Smallest lag of this tick's rows; infinite: none."""


class MeshWork:
    """All clocks' states. `beliefs` is what the edge work takes up after each tick."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._c = config
        self._counters = counters
        self.clocks = Clocks(config)
        self._lag = Lag()
        self._smoother = Smoother(config.lag_ns, config.skew_limit_ppb)
        self._edges = empty()
        self._reference = Reference(config.reference, counters)
        self._utc = UtcTie(config.utc_clocks, config.utc_err_ns, config.unknown_err_ns, counters)
        self._usual = 0.0
        self._ticks = 0
        self._known: dict[int, tuple[int, list[str], Int64s]] = {}
        """By place of the report: how many names it had, the mesh's names then, and its clocks' numbers."""

    @property
    def usual(self) -> float:
        """Square of the usual disagreement of a session with the mesh, ns²: what is not surprising."""
        return self._usual

    def begin(self, bus_at_ns: int, origin_ns: int | None = None) -> None:
        """Origin of internal time: the hour in which the first message came, unless one is given."""
        hour = 3_600_000_000_000
        self.clocks.beliefs.origin_ns = bus_at_ns // hour * hour if origin_ns is None else origin_ns
        self.clocks.beliefs.at = float(bus_at_ns - self.clocks.beliefs.origin_ns)

    def tick(self, bus_at_ns: int, reports: Sequence[Report]) -> list[Output]:
        """100 ms of bus time have passed: solve, and publish every clock's causal row."""
        clocks = self.clocks
        self._ticks += 1
        self._greet(reports)
        if not clocks.n:
            return []
        beliefs = clocks.beliefs
        # with the lag of the last tick, as the edge work did
        clocks.advance(max(self.present(bus_at_ns), beliefs.at))
        self._see_lag(reports)
        e = self._edges = self._joined(reports)
        doubt = np.zeros(clocks.n)
        if e.src.size:
            doubt = self._learn(e)
        self._smoother.push(beliefs, doubt)
        self._choose_reference()
        if self._ticks % _TICKS_PER_REACH == 1:
            t = clocks.table
            t["reach"] = reach(e, beliefs.table["xx"], clocks.label, beliefs.reference) if e.src.size else t["reach"]
        beliefs.lag_ns = self._lag.value
        out = [Output(CLOCK.name, "mesh", self._causal())]
        if self._ticks % TICKS_PER_PASS == 0:
            out += self._smoothed(self._smoother.due(beliefs.at))
        if self._ticks % _TICKS_PER_SWEEP == 0:
            self._sweep()
        return out

    def _see_lag(self, reports: Sequence[Report]) -> None:
        for report in reports:
            if report.lag_ns < np.inf:
                self._lag.see(np.array([report.lag_ns]))
        self._lag.turn()

    def present(self, bus_at_ns: int) -> float:
        """Internal time that evidence has reached: bus time less the lag."""
        return float(bus_at_ns - self.clocks.beliefs.origin_ns) - self._lag.value

    def _greet(self, reports: Sequence[Report]) -> None:
        """Clocks heard for the first time, and their bases: the newest first stamp stands for the bus time."""
        hello: dict[str, int] = {}
        for report in reports:
            for name, base in report.hello.items():
                hello[name] = max(base, hello.get(name, base))
        if hello:
            who = sorted(hello)
            placed = self.clocks.enter(who)
            if placed is not None:
                self._smoother.place(placed, self.clocks.n)
            number = {name: k for k, name in enumerate(self.clocks.names)}
            at = np.array([number[name] for name in who], dtype=np.int64)
            self.clocks.set_bases(at, np.array([hello[name] for name in who], dtype=np.int64))

    def _joined(self, reports: Sequence[Report]) -> Edges:
        """All parts' rows in the mesh's numbers, in order of the clocks' names: no sum depends on who made the rows."""
        parts = []
        for place, report in enumerate(reports):
            if report.edges.src.size:
                of = self._numbers(place, report.clocks)
                parts.append(_known(report.edges._replace(src=of[report.edges.src], dst=of[report.edges.dst])))
        if not parts:
            return empty()
        e = parts[0] if len(parts) == 1 else Edges._make(map(np.concatenate, zip(*parts, strict=True)))
        key = (e.src << 32) | e.dst
        if (key[1:] >= key[:-1]).all():
            return e
        order = np.argsort(key, kind="stable")
        return Edges._make(column[order] for column in e)

    def _numbers(self, place: int, names: list[str]) -> Int64s:
        """The mesh's number of each of a report's clocks, −1: never heard; looked up anew when names came or went."""
        known = self._known.get(place)
        if known is None or known[0] != len(names) or known[1] is not self.clocks.names:
            number = {name: k for k, name in enumerate(self.clocks.names)}
            of = np.array([number.get(name, -1) for name in names], dtype=np.int64)
            known = self._known[place] = (len(names), self.clocks.names, of)
        return known[2]

    def _learn(self, e: Edges) -> Float64s:
        clocks, b = self.clocks, self.clocks.beliefs.table
        clocks.tie(e.src[e.heard], e.dst[e.heard])
        clocks.take(solve(e, b["offset"], b["skew"], b["xx"], clocks.label), e, self._ticks)
        self._usual = float(np.median(e.rest)) if e.rest.size else 0.0
        size = mesh.stepped(e, clocks.n)
        new = clocks.step(size)
        self._counters.add("clock-steps", n=int(new.sum()))
        return np.where(new, size, 0.0)

    def _choose_reference(self) -> None:
        clocks, b = self.clocks, self.clocks.beliefs
        alive, known = clocks.alive(), b.table["bound"] < self._c.unsynced_err_ns**2
        bank = Bank(b.at, b.table["base_ns"], b.table["offset"], b.table["skew"])
        chosen = self._reference.choose(clocks.names, np.arange(clocks.n), clocks.label, alive, known, bank)
        b.reference, b.place = chosen.clock, self._reference.place(bank)
        if alive.any():
            clocks.mark_tied()

    def _causal(self) -> pa.RecordBatch:
        b = self.clocks.beliefs
        t = b.table
        return self._rows(Smoothed(b.at, t["offset"], t["skew"], t["xx"], np.ones(b.n, np.bool_)), publish.CAUSAL)

    def _smoothed(self, past: list[Smoothed]) -> list[Output]:
        """One message with the rows of several past ticks; a reference that joined since has no state there."""
        past = [p for p in past if p.there[self.clocks.beliefs.reference]]
        if not past:
            return []
        rows = pa.Table.from_batches([self._rows(p, publish.SMOOTHED) for p in past]).combine_chunks()
        return [Output(CLOCK.name, "mesh", rows.to_batches()[0])]

    def flush(self) -> list[Output]:
        """Smoothed rows that still wait."""
        return self._smoothed(self._smoother.flush()) if self.clocks.n else []

    def _rows(self, s: Smoothed, kind: int) -> pa.RecordBatch:
        """States of one instant, relative to the reference."""
        c, clocks, causal = self._c, self.clocks, kind == publish.CAUSAL
        b, names, there = clocks.beliefs, clocks.names, s.there
        bank = Bank(s.at, b.table["base_ns"], s.offset, s.skew)
        r = self._reference.place(bank)
        err = c.err_sigmas * np.sqrt(clocks.variance_to(self._reference.scale(clocks.n), s.variance))
        status, samples = clocks.status(s.at, err, settle=causal), np.rint(clocks.table["samples"]).astype(np.int64)
        if causal and self._utc.wanted:
            u = self._utc.step(names, status == 0, bank, err, r)
            names, there = [*names, UTC], np.append(there, True)
            bank = Bank(
                s.at, np.append(bank.base_ns, np.int64(u.base_ns)), *map(np.append, bank[2:], (u.offset, u.skew))
            )
            err, status, samples = np.append(err, u.err_ns), np.append(status, u.status), np.append(samples, u.n)
        pick = np.flatnonzero(there)
        return publish.clock_rows(
            names,
            pick,
            at_ns=(bank.base_ns + b.origin_ns + np.rint(s.at + bank.offset).astype(np.int64))[pick],
            offset_ns=((bank.base_ns - r.base_ns) + (bank.offset - r.offset))[pick],
            skew_ppb=(bank.skew - r.skew)[pick],
            err_ns=np.minimum(err, c.unknown_err_ns)[pick],
            n=samples[pick],
            status=status[pick],
            kind=kind,
        )

    def _sweep(self) -> None:
        """Forget clocks that no part of the edge work names any more."""
        named = np.zeros(self.clocks.n, dtype=np.bool_)
        named[self._edges.src] = named[self._edges.dst] = True
        named |= self.clocks.alive() | ~self.clocks.beliefs.table["based"]
        silent = self.clocks.beliefs.at - self.clocks.table["sampled_at"] > self._c.forget_ns
        keep: Bools = named | ~silent
        if keep.all() or not keep.any():
            return
        self._known.clear()
        self._counters.add("forgotten", "clocks", int((~keep).sum()))
        self._smoother.keep(keep)
        self.clocks.keep(keep)
        self._reference.keep(keep)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "clocks": self.clocks.snapshot(),
            "lag": self._lag.snapshot(),
            "smoother": self._smoother.snapshot(),
            "reference": self._reference.snapshot(),
            "utc": self._utc.snapshot(),
            "edges": list(self._edges),
            "usual": self._usual,
            "ticks": self._ticks,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.clocks.restore(state["clocks"])
        self._known.clear()
        self._lag.restore(state["lag"])
        self._smoother.restore(state["smoother"])
        self._reference.restore(state["reference"])
        self._utc.restore(state["utc"])
        self._edges = Edges(*state["edges"])
        self._usual = float(state["usual"])
        self._ticks = int(state["ticks"])


def _known(e: Edges) -> Edges:
    """Without the pairs of clocks that nobody has heard yet."""
    use = (e.src >= 0) & (e.dst >= 0)
    return e if use.all() else Edges._make(column[use] for column in e)
