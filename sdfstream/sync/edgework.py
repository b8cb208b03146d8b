"""The work on sessions: blocks of exchanges against the mesh's estimates of a tick ago. Splits by sending host.

Nothing here looks at two sessions at once but the sums per clock pair (`reduce`), which belong to one sending host; so
any number of these, each with its share of the hosts, report together what one of them reports alone.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.numeric.group import Distinct, sums
from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync import breaks, stamp_noise
from sdfstream.sync import edge_filter as ef
from sdfstream.sync.blocks import Blocks, blocks, learn_moments, narrow
from sdfstream.sync.bustime import NEAR_NS, NEVER_LATE_NS
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.estimates import ClockEstimates, CorrectedRows
from sdfstream.sync.reduce import ReducedEdges, TickEvidence, empty, less_drifted, reduce, residuals
from sdfstream.sync.registry import Roster
from sdfstream.sync.sessions import UNKNOWN, FirstBlock, start

_JUMP_TICKS: Final = 10
"""Sessions that notice one step do so within about a second."""


class EdgeWork:
    """Edge filters of all sessions of a `Roster`."""

    def __init__(self, config: SyncConfig, counters: Counters, roster: Roster) -> None:
        self._c = config
        self._counters = counters
        self._roster = roster
        self._pending: list[CorrectedRows] = []
        self._jumps: list[tuple[int, Int64s, Float64s]] = []
        """(tick, sessions, sizes) of the last second's jumps."""
        self._ticks = 0
        self._at = 0.0
        self._pairs = Distinct()
        self.rerouted: list[tuple[Int64s, Float64s]] = []
        """Sessions whose path got another length in this tick, and by how much, ns: positive, longer."""

    def put(self, rows: CorrectedRows) -> None:
        """Corrected rows wait for the tick."""
        self._pending.append(rows)

    def tick(self, estimates: ClockEstimates, at_ns: float, usual_ns2: float, number: int) -> ReducedEdges:
        """Update the edge filters with the waiting rows, and sum them up per clock pair.

        `estimates`: the mesh's, of an earlier tick; predicted to internal time `at_ns` here. `number`: of this tick.
        """
        t, c = self._roster.sessions, self._c
        self._ticks = number
        self.rerouted = []
        rows = self._waiting(at_ns)
        if not t.rows:
            estimates.advance(at_ns)
            return empty()
        src, dst = t["clock_src"], t["clock_dst"]
        self._propagate(estimates)
        estimates.advance(at_ns)
        line, mesh_var = estimates.pair(src, dst)
        walk = estimates.both("freq_walk", src, dst)
        ef.age(
            t,
            max(at_ns - self._at, 0.0) / NS_PER_S,
            walk,
            estimates.both("phase_walk", src, dst),
            mesh_var,
            c.floor_drift_ns,
        )
        self._follow_drift(estimates.table, max(at_ns - self._at, 0.0) / NS_PER_S)
        self._at = at_ns
        # before this tick's blocks, which the mesh does not know yet
        trust = residuals(t, line, usual_ns2, self._calm(), t["began_at_ns"] <= estimates.solved_at_ns)
        trips, received = breaks.NOTHING, TickEvidence(rows.session, np.zeros(t.rows), np.zeros(t.rows))
        if rows.session.size:
            block = blocks(rows.session, rows.at_ns, rows.fwd_ns, rows.rev_ns, t["centre_ns"], narrow(t, c))
            session = block.session
            t["received_at_ns"][session] = at_ns
            skew = estimates.table["skew_ppb"]
            offset_skew_cov, skew_var_ppb2 = (
                estimates.both("offset_skew_cov", src, dst),
                estimates.both("skew_var_ppb2", src, dst),
            )
            predicted = ef.MeshPrediction(line, skew[dst] - skew[src], mesh_var, offset_skew_cov, skew_var_ppb2)
            trips, surprise_ns, breach_ns = self._learn(block, predicted.pick(session), walk[session], at_ns)
            received = received._replace(session=session)
            received.surprise_ns2[session], received.breach_ns2[session] = surprise_ns**2, breach_ns**2
        e = reduce(t, trust, line, usual_ns2, at_ns, received, self._jumped(trips), c, self._pairs)
        return less_drifted(e, estimates.table["followed_ns"], estimates.table["followed_ppb"])

    def _follow_drift(self, b: Table, dt_s: float) -> None:
        """Move all filters, which were carried straight on for `dt_s`, by what drifts have made of the clocks since."""
        t = self._roster.sessions
        src, dst = t["clock_src"], t["clock_dst"]
        offset_ns = b["drifted_ns"] - b["followed_ns"] - b["followed_ppb"] * dt_s
        skew_ppb = b["drifted_ppb"] - b["followed_ppb"]
        t["offset_ns"] += offset_ns[dst] - offset_ns[src]
        t["slope_ppb"] += skew_ppb[dst] - skew_ppb[src]
        b["followed_ns"], b["followed_ppb"] = b["drifted_ns"], b["drifted_ppb"]

    def _propagate(self, estimates: ClockEstimates) -> None:
        """Move base delays by the mesh's answer to what sessions reported, once it has solved with that."""
        t = self._roster.sessions
        reported = np.flatnonzero((t["reported_var_ns2"] > 0.0) & (t["reported_at_ns"] <= estimates.solved_at_ns))
        src, dst = t["clock_src"][reported], t["clock_dst"][reported]
        line, mesh_var = estimates.pair(src, dst)
        skew = estimates.table["skew_ppb"]
        since_s = (estimates.at_ns - t["reported_at_ns"][reported]) / NS_PER_S
        ef.propagate(t, reported, line - (skew[dst] - skew[src]) * since_s, mesh_var)

    def _learn_minima(self, i: Int64s, min_delay_ns: Float64s, v: ef.Prior, at_ns: float) -> None:
        """`learn_minima`; a report that the mesh has not solved with yet stays the one its answer will be about."""
        t = self._roster.sessions
        waits = np.flatnonzero(t["reported_var_ns2"][i] > 0.0)
        mean, var, since = (t[name][i[waits]] for name in ("reported_mean_ns", "reported_var_ns2", "reported_at_ns"))
        ef.learn_minima(t, i, min_delay_ns, v, self._c)
        t["reported_at_ns"][i] = at_ns
        if waits.size:
            t["reported_mean_ns"][i[waits]], t["reported_var_ns2"][i[waits]], t["reported_at_ns"][i[waits]] = (
                mean,
                var,
                since,
            )

    def _learn(
        self, block: Blocks, predicted: ef.MeshPrediction, walk: Float64s, at_ns: float
    ) -> tuple[breaks.Breaks, Float64s, Float64s]:
        """One tick's blocks into new, quiet and bounded filters; each block's surprise and breach, ns."""
        t, c, i = self._roster.sessions, self._c, block.session
        self._begin(block, predicted, at_ns)
        learn_moments(t, block, c)
        age_s, span_s = (at_ns - block.at_ns) / NS_PER_S, block.span / NS_PER_S
        stamp_noise.learn(t, i, block.minimum, c)
        passed = ef.Passed(age_s, span_s, stamp_noise.noise_ns2(t, i, c) + walk * np.abs(age_s) ** 3 / 3.0)
        v = ef.prior(t, i, predicted, passed)
        calm = t["quiet"][i] & (block.n > 0).all(axis=0)
        ef.learn_means(t, block, np.flatnonzero(calm), v, c)
        e = ef.excess(block.minimum, v, t["base_delay_ns"][i])
        scale = t["excess_scale_ns"].take(i, axis=1)
        broken, breach, surprise = ef.gate(e, ef.sigma(v, t, i), scale, c, t["at_floor"][i])
        trips = breaks.count_broken(t, i, block.minimum, e, v, broken, c)
        off = np.flatnonzero((surprise > 0.0) & ~calm)
        if off.size:
            self._inflate(i[off], surprise[off])
            v = ef.prior(t, i, predicted, passed)
            v.variance[off] = np.maximum(v.variance[off], 0.125 * surprise[off] ** 2)
        use = np.flatnonzero(~broken & ~calm & (t["offset_var_ns2"][i] < UNKNOWN))
        self._learn_minima(i[use], block.minimum.take(use, axis=1), v.pick(use), at_ns)
        turn = self._ticks % (c.floor_lost_ns // TICK_NS) == 0
        lost = breaks.watch_floors(t, i[use], e.take(use, axis=1), turn, c)
        for kind, found in (("shorter", trips), ("longer", lost)):
            if found.rerouted.size:
                self._counters.add("reroutes", kind, found.rerouted.size)
                self.rerouted.append((found.rerouted, found.change_ns))
        return trips, np.where(calm, 0.0, surprise), np.where(calm, 0.0, breach)

    def _calm(self) -> Bools:
        """Sessions that did not jump within the last second; what a jump leaves behind is no disagreement."""
        calm = np.ones(self._roster.sessions.rows, dtype=np.bool_)
        for _, jumped, _ in self._jumps:
            calm[jumped] = False
        return calm

    def _inflate(self, i: Int64s, size: Float64s) -> None:
        """Half of a surprise's square for the offset, half for the base delay."""
        t = self._roster.sessions
        ef.inflate(t, i, size / np.sqrt(8.0))
        t["base_delay_var_ns2"][i] += 0.125 * size * size

    def _begin(self, block: Blocks, predicted: ef.MeshPrediction, at_ns: float) -> None:
        """Start the filters of new sessions, once both directions have a delay."""
        t, i = self._roster.sessions, block.session
        new = np.flatnonzero((t["offset_var_ns2"][i] >= UNKNOWN) & np.isfinite(block.minimum).all(axis=0))
        if new.size:
            fwd, rev = block.minimum.take(new, axis=1)
            offset_ns, age_s = predicted.line[new] + 0.5 * (fwd - rev), (at_ns - block.at_ns[new]) / NS_PER_S
            first = FirstBlock(offset_ns, predicted.slope[new], age_s, 0.5 * (fwd + rev))
            t["began_at_ns"][i[new]] = at_ns
            start(t, i[new], first, self._c.skew_limit_ppb)

    def _waiting(self, at_ns: float) -> CorrectedRows:
        """Answered rows since the last tick; one further than `NEAR_NS` from now is not learned from (counted)."""
        pending, self._pending = self._pending, []
        if not pending:
            return CorrectedRows.none()
        rows = _joined(pending)
        away = np.abs(rows.at_ns - at_ns)
        near: Bools = away < NEAR_NS
        if (away > NEVER_LATE_NS).any():
            # no row is so late: its clock was set, and the row has just happened
            rows = rows._replace(at_ns=np.where(away > NEVER_LATE_NS, at_ns, rows.at_ns))
            near |= away > NEVER_LATE_NS
        self._counters.add("not-learned", "stale", int((~near).sum()))
        use = near & ~(np.isnan(rows.fwd_ns) & np.isnan(rows.rev_ns))
        return rows if use.all() else CorrectedRows._make(column[use] for column in rows)

    def _jumped(self, trips: breaks.Breaks) -> tuple[Int64s, Float64s]:
        """Sessions that jumped within the last second, and by how much at most."""
        if trips.stepped.size:
            self._counters.add("floors-broken", n=trips.stepped.size)
            self._jumps.append((self._ticks, trips.stepped, trips.size_ns))
        self._jumps = [j for j in self._jumps if self._ticks - j[0] < _JUMP_TICKS]
        if not self._jumps:
            return trips.stepped, trips.size_ns
        jumped = np.concatenate([j[1] for j in self._jumps])
        size = np.concatenate([j[2] for j in self._jumps])
        sessions, inverse = np.unique(jumped, return_inverse=True)
        return sessions, sums(inverse, size, sessions.size) / np.bincount(inverse)

    def keep(self, mask: Bools) -> None:
        """Sessions got new numbers; rows of forgotten ones are not waiting (they were silent)."""
        number = np.cumsum(mask) - 1
        self._jumps = [(k, number[jumped[mask[jumped]]], size[mask[jumped]]) for k, jumped, size in self._jumps]

    def snapshot(self) -> dict[str, Any]:
        """Everything but the roster."""
        return {
            "pending": [list(_joined(self._pending))] if self._pending else [],
            "jumps": [list(j) for j in self._jumps],
            "ticks": self._ticks,
            "at": self._at,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._pending = [CorrectedRows._make(columns) for columns in state["pending"]]
        self._jumps = [(int(k), jumped, size) for k, jumped, size in state["jumps"]]
        self._ticks, self._at = int(state["ticks"]), float(state["at"])


def _joined(pending: list[CorrectedRows]) -> CorrectedRows:
    return pending[0] if len(pending) == 1 else CorrectedRows._make(map(np.concatenate, zip(*pending, strict=True)))
