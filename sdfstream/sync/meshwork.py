"""The work on all clocks together: reduced edges in, estimates and published states out, once per tick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.group import median
from sdfstream.records.hostclock import UTC
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync import mesh, publish
from sdfstream.sync.bustime import LATE_NS, Lag
from sdfstream.sync.clocks import MeshClocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.mesh import reach, solve
from sdfstream.sync.publish import ClockRows
from sdfstream.sync.reduce import ReducedEdges, empty, less_drifted, restored
from sdfstream.sync.reference import Candidates, Ensemble, Reference
from sdfstream.sync.smoother import TICKS_PER_PASS, Smoothed, Smoother
from sdfstream.sync.utc import UtcTie
from sdfstream.sync.wander import NEVER

_TICKS_PER_REACH: Final = 10
_TICKS_PER_SWEEP: Final = 100


class TickReport(NamedTuple):
    """Report of one process of the edge work about a tick."""

    clocks: list[str]
    """Names behind the clock numbers in `edges`."""
    edges: ReducedEdges
    new_bases_ns: dict[str, int]
    """First stamp minus bus time of clocks that have no base yet, ns."""
    lag_ns: float
    """Smallest lag of this tick's rows; infinite: none."""
    drifted: Mapping[str, tuple[float, float]] = MappingProxyType({})
    """What drifts have made of offset (ns) and skew (ppb) of those clocks, where the sessions have followed any."""


class MeshWork:
    """All clocks' states. `estimates` is what the edge work takes up after each tick."""

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._c = config
        self._counters = counters
        self.clocks = MeshClocks(config)
        self._lag = Lag()
        self._smoother = Smoother(config.lag_ns, config.skew_limit_ppb)
        self._edges = empty()
        self._reference = Reference(config.reference, counters)
        self._utc = UtcTie(config.utc_clocks, config.utc_err_ns, config.unknown_err_ns, counters)
        self._usual_ns2 = 0.0
        self._ticks = 0
        self._known: dict[int, tuple[int, list[str], Int64s]] = {}
        """By index of the report: how many names it had, the mesh's names then, and its clocks' numbers."""

    @property
    def usual_ns2(self) -> float:
        """Square of the usual disagreement of a session with the mesh, ns²: what is not surprising.

        That of the sessions tied to the reference: of others nobody knows whose they are.
        """
        return self._usual_ns2

    def begin(self, bus_at_ns: int, origin_ns: int | None = None) -> None:
        """Origin of internal time: the hour in which the first message came, unless one is given."""
        hour = 3_600_000_000_000
        self.clocks.estimates.origin_ns = bus_at_ns // hour * hour if origin_ns is None else origin_ns
        self.clocks.estimates.at_ns = float(bus_at_ns - self.clocks.estimates.origin_ns)

    def tick(self, bus_at_ns: int, reports: Sequence[TickReport]) -> list[Output]:
        """100 ms of bus time have passed: solve, and publish every clock's causal row."""
        self.solve(bus_at_ns, reports)
        return self.causal(bus_at_ns) + self.end_tick()

    def solve(self, bus_at_ns: int, reports: Sequence[TickReport]) -> None:
        """All clocks' states at a tick, from all reports about it."""
        clocks = self.clocks
        self._ticks += 1
        self._enter_new(reports)
        if not clocks.n:
            return
        estimates = clocks.estimates
        # with the lag of the last tick, as the edge work did
        clocks.advance(max(self.present(bus_at_ns), estimates.at_ns))
        self._see_lag(reports)
        e = self._edges = self._joined(reports)
        step_ns = np.zeros(clocks.n)
        if e.src.size:
            step_ns = self._learn(e)
        self._smoother.push(estimates, step_ns)
        self._choose_reference()
        if self._ticks % _TICKS_PER_REACH == 1:
            t = clocks.table
            t["reach_factor"] = (
                reach(e, estimates.table["offset_var_ns2"], clocks.label, estimates.reference)
                if e.src.size
                else t["reach_factor"]
            )
        estimates.lag_ns = self._lag.value

    def causal(self, bus_at_ns: int) -> list[Output]:
        """Every clock's causal row: of the tick last solved, or predicted from there where evidence is late."""
        if not self.clocks.n:
            return []
        b = self.clocks.estimates
        ahead_ns = float(bus_at_ns - b.origin_ns) - self._lag.earliest - b.at_ns
        ahead_ns = ahead_ns if ahead_ns > LATE_NS else 0.0
        offset_ns, variance = b.ahead(ahead_ns)
        offset_ns = offset_ns + self.clocks.table["drift_suspect_ns"]
        state = Smoothed(b.at_ns + ahead_ns, offset_ns, b.table["skew_ppb"], variance, np.ones(b.n, np.bool_))
        return [Output(CLOCK.name, "mesh", publish.clock_rows(*self._rows(state, publish.CAUSAL), publish.CAUSAL))]

    def end_tick(self) -> list[Output]:
        """The smoothed rows that are due after the tick last solved; now and then clocks are forgotten."""
        if not self.clocks.n:
            return []
        out: list[Output] = []
        if self._ticks % TICKS_PER_PASS == 0:
            out = self._smoothed(self._smoother.due(self.clocks.estimates.at_ns))
        if self._ticks % _TICKS_PER_SWEEP == 0:
            self._sweep()
        return out

    def _see_lag(self, reports: Sequence[TickReport]) -> None:
        for report in reports:
            self._lag.add(report.lag_ns)
        self._lag.end_tick()

    def present(self, bus_at_ns: int) -> float:
        """Internal time that evidence has reached: bus time less the lag."""
        return float(bus_at_ns - self.clocks.estimates.origin_ns) - self._lag.value

    def _enter_new(self, reports: Sequence[TickReport]) -> None:
        """Enter new clocks and their bases: the newest first stamp stands for the bus time."""
        new_bases_ns: dict[str, int] = {}
        for report in reports:
            for name, base in report.new_bases_ns.items():
                new_bases_ns[name] = max(base, new_bases_ns.get(name, base))
        if new_bases_ns:
            names = sorted(new_bases_ns)
            placed = self.clocks.enter(names)
            if placed is not None:
                self._smoother.scatter(placed, self.clocks.n)
            number = {name: k for k, name in enumerate(self.clocks.names)}
            at = np.array([number[name] for name in names], dtype=np.int64)
            self.clocks.set_bases(at, np.array([new_bases_ns[name] for name in names], dtype=np.int64))
            for report in reports:
                for name, (offset_ns, skew_ppb) in report.drifted.items():
                    self.clocks.set_drifted(number[name], offset_ns, skew_ppb)

    def _joined(self, reports: Sequence[TickReport]) -> ReducedEdges:
        """All reports' rows in the mesh's numbers, in order of the clocks' names: no sum depends on the split."""
        pieces = []
        for index, report in enumerate(reports):
            if report.edges.src.size:
                of = self._numbers(index, report.clocks)
                pieces.append(_known(report.edges._replace(src=of[report.edges.src], dst=of[report.edges.dst])))
        if not pieces:
            return empty()
        e = pieces[0] if len(pieces) == 1 else ReducedEdges._make(map(np.concatenate, zip(*pieces, strict=True)))
        key = (e.src << 32) | e.dst
        if (key[1:] >= key[:-1]).all():
            return e
        order = np.argsort(key, kind="stable")
        return ReducedEdges._make(column[order] for column in e)

    def _numbers(self, index: int, names: list[str]) -> Int64s:
        """The mesh's number of each of a report's clocks, −1: unknown; looked up anew when names came or went."""
        known = self._known.get(index)
        if known is None or known[0] != len(names) or known[1] is not self.clocks.names:
            number = {name: k for k, name in enumerate(self.clocks.names)}
            of = np.array([number.get(name, -1) for name in names], dtype=np.int64)
            known = self._known[index] = (len(names), self.clocks.names, of)
        return known[2]

    def _learn(self, e: ReducedEdges) -> Float64s:
        clocks, b = self.clocks, self.clocks.estimates.table
        clocks.tie(e.src[e.recent], e.dst[e.recent])
        e = less_drifted(e, -b["drifted_ns"], -b["drifted_ppb"])
        clocks.take(solve(e, b["offset_ns"], b["skew_ppb"], b["offset_var_ns2"], clocks.label), e, self._ticks)
        tied = e.residual_ns2[clocks.label[e.src] == clocks.label[clocks.estimates.reference]]
        self._usual_ns2 = median(tied) if tied.size else 0.0
        size = mesh.stepped(e, clocks.n)
        new = clocks.step(size)
        self._counters.add("clock-steps", n=int(new.sum()))
        return np.where(new, size, 0.0)

    def _choose_reference(self) -> None:
        clocks, b = self.clocks, self.clocks.estimates
        alive, known = clocks.alive(), b.table["bound_ns2"] < self._c.unsynced_err_ns**2
        ensemble = Ensemble(b.at_ns, b.table["base_ns"], b.table["offset_ns"], b.table["skew_ppb"])
        tied = clocks.table["tied_at_ns"] != NEVER
        candidates = Candidates(np.arange(clocks.n), clocks.label, alive, known, tied)
        chosen = self._reference.choose(clocks.names, candidates, ensemble)
        clocks.change_reference(chosen.clock)
        b.reference_state = self._reference.state_at(ensemble)
        if alive.any():
            clocks.mark_tied()

    def _smoothed(self, past: list[Smoothed]) -> list[Output]:
        """One message with the rows of several past ticks; a reference that joined since has no state there."""
        past = [p for p in past if p.known[self.clocks.estimates.reference]]
        if not past:
            return []
        each = [self._rows(p, publish.SMOOTHED)[1] for p in past]
        rows = ClockRows._make(map(np.concatenate, zip(*each, strict=True)))
        return [Output(CLOCK.name, "mesh", publish.clock_rows(self.clocks.names, rows, publish.SMOOTHED))]

    def flush(self) -> list[Output]:
        """Smoothed rows that still wait."""
        return self._smoothed(self._smoother.flush()) if self.clocks.n else []

    def _rows(self, s: Smoothed, kind: int) -> tuple[list[str], ClockRows]:
        """States of one instant, relative to the reference; the names that they are numbered by."""
        c, clocks, causal = self._c, self.clocks, kind == publish.CAUSAL
        b, names, known = clocks.estimates, clocks.names, s.known
        ensemble = Ensemble(s.at_ns, b.table["base_ns"], s.offset_ns, s.skew_ppb)
        r = self._reference.state_at(ensemble)
        err = c.err_sigmas * np.sqrt(clocks.variance_to(self._reference.scale(clocks.n), s.variance))
        # a state predicted ahead is as fresh as the evidence behind it
        status = clocks.status(min(s.at_ns, b.at_ns), err, settle=causal)
        samples = np.rint(clocks.table["samples"]).astype(np.int64)
        if causal and self._utc.wanted:
            u = self._utc.step(names, status == 0, ensemble, err, r)
            names, known = [*names, UTC], np.append(known, True)
            ensemble = Ensemble(
                s.at_ns,
                np.append(ensemble.base_ns, np.int64(u.base_ns)),
                *map(np.append, ensemble[2:], (u.offset_ns, u.skew_ppb)),
            )
            err, status, samples = np.append(err, u.err_ns), np.append(status, u.status), np.append(samples, u.n)
        pick = np.flatnonzero(known)
        return names, ClockRows(
            clock=pick,
            at_ns=(ensemble.base_ns + b.origin_ns + np.rint(s.at_ns + ensemble.offset_ns).astype(np.int64))[pick],
            offset_ns=((ensemble.base_ns - r.base_ns) + (ensemble.offset_ns - r.offset_ns))[pick],
            skew_ppb=(ensemble.skew_ppb - r.skew_ppb)[pick],
            err_ns=np.minimum(err, c.unknown_err_ns)[pick],
            n=samples[pick],
            status=status[pick],
        )

    def _sweep(self) -> None:
        """Forget clocks that no report names any more."""
        named = np.zeros(self.clocks.n, dtype=np.bool_)
        named[self._edges.src] = named[self._edges.dst] = True
        named |= self.clocks.alive() | ~self.clocks.estimates.table["based"]
        silent = self.clocks.estimates.at_ns - self.clocks.table["sampled_at_ns"] > self._c.forget_ns
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
            "usual": self._usual_ns2,
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
        self._edges = restored(state["edges"])
        self._usual_ns2 = float(state["usual"])
        self._ticks = int(state["ticks"])


def _known(e: ReducedEdges) -> ReducedEdges:
    """Without the pairs of unknown clocks."""
    use = (e.src >= 0) & (e.dst >= 0)
    return e if use.all() else ReducedEdges._make(column[use] for column in e)
