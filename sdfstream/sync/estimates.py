"""Estimates of all clocks, as the mesh solved them one tick earlier, and stamps corrected by them.

Internal time. Every clock has an integer `base_ns` (near its first stamp minus bus time), so that reading − base lies
near bus time for every clock, however wrong. On that scale x is the clock's offset from the *ensemble*, a free common
gauge; what is published is the difference to the reference clock's x.

The covariance is that clock's *own*: the variance of the difference of two clocks is the sum of both.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.intake import AcceptedExchanges
from sdfstream.sync.reference import ReferenceState
from sdfstream.sync.sessions import UNKNOWN

COLUMNS: Final[dict[str, Any]] = {
    "base_ns": np.int64(0),
    "based": np.bool_(False),
    "offset_ns": np.float64(0.0),
    "skew_ppb": np.float64(0.0),
    "offset_var_ns2": np.float64(UNKNOWN),
    "offset_skew_cov": np.float64(0.0),
    "skew_var_ppb2": np.float64(0.0),
    "freq_walk": np.float64(0.0),
    "phase_walk": np.float64(0.0),
    "bound_ns2": np.float64(UNKNOWN),
    "drift_ppb_s": np.float64(0.0),
    "drifted_ns": np.float64(0.0),
    "drifted_ppb": np.float64(0.0),
}
"""`base_ns` where `based`; offset (ns), skew (ns/s = ppb) and their own covariance; `freq_walk`, `phase_walk`: random
walks of the frequency (ns²/s³) and of the phase (ns²/s); `bound_ns2`: variance behind the published error;
`drift_ppb_s`: how fast the skew drifts (`drift`), `drifted`: all that drifts have made of offset and skew so far."""
FOLLOWED: Final[dict[str, Any]] = {"followed_ns": np.float64(0.0), "followed_ppb": np.float64(0.0)}
"""Only where sessions are: as much of `drifted` as their filters have followed (`edgework`)."""


class ClockEstimates:
    """One row per clock, at one instant of internal time `at_ns` (ns since `origin_ns`)."""

    def __init__(self) -> None:
        self.table = Table(COLUMNS | FOLLOWED)
        self.origin_ns = 0
        self.at_ns = 0.0
        self.solved_at_ns = 0.0
        """Instant of the last tick that the mesh had solved, from which these were predicted forward."""
        self.lag_ns = 0.0
        """How far the newest evidence is behind the bus (`lag`)."""
        self.reference = 0
        """Number of the reference clock, or of one in the component of a mean."""
        self.reference_state = ReferenceState(0.0, 0, 0.0, 0.0)
        """Where the reference stood when the mesh was last solved."""

    @property
    def n(self) -> int:
        """Clocks known."""
        return self.table.rows

    @property
    def unbased(self) -> bool:
        """Whether a clock waits for its first stamp to be taken up by the mesh."""
        return not bool(self.table["based"].all())

    def advance(self, at_ns: float) -> None:
        """Predict every clock forward to `at_ns`."""
        dt = (at_ns - self.at_ns) / NS_PER_S
        self.at_ns = at_ns
        if dt <= 0.0:
            return
        t = self.table
        walk, gg, drift = t["freq_walk"], t["skew_var_ppb2"], t["drift_ppb_s"]
        for offset, skew in (("offset_ns", "skew_ppb"), ("drifted_ns", "drifted_ppb")):
            t[offset] += (t[skew] + 0.5 * dt * drift) * dt
            t[skew] += drift * dt
        t["offset_var_ns2"] = np.minimum(t["offset_var_ns2"] + self._grown(dt), UNKNOWN)
        t["offset_skew_cov"] = t["offset_skew_cov"] + gg * dt + walk * (dt * dt / 2.0)
        t["skew_var_ppb2"] = gg + walk * dt

    def ahead(self, ns: float) -> tuple[Float64s, Float64s]:
        """Every clock's offset and its own variance `ns` later, ns and ns², without advancing."""
        t = self.table
        if ns <= 0.0:
            return t["offset_ns"], t["offset_var_ns2"]
        dt = ns / NS_PER_S
        ahead_ns = t["offset_ns"] + (t["skew_ppb"] + 0.5 * dt * t["drift_ppb_s"]) * dt
        return ahead_ns, np.minimum(t["offset_var_ns2"] + self._grown(dt), UNKNOWN)

    def _grown(self, dt_s: float) -> Float64s:
        """Variance that each clock's offset gains in `dt_s`, ns²."""
        t = self.table
        walk, phase, xg, gg = t["freq_walk"], t["phase_walk"], t["offset_skew_cov"], t["skew_var_ppb2"]
        grown: Float64s = (2.0 * xg + gg * dt_s) * dt_s + phase * dt_s + walk * (dt_s**3 / 3.0)
        return grown

    def pair(self, src: Int64s, dst: Int64s) -> tuple[Float64s, Float64s]:
        """Predicted clock difference dst − src, and its variance, ns and ns²."""
        t = self.table
        return t["offset_ns"][dst] - t["offset_ns"][src], np.minimum(
            t["offset_var_ns2"][src] + t["offset_var_ns2"][dst], UNKNOWN
        )

    def both(self, name: str, src: Int64s, dst: Int64s) -> Float64s:
        """Sum of a variance or walk over both clocks of each session."""
        column = self.table[name]
        result: Float64s = column[src] + column[dst]
        return result

    def reference_ns(self, at_ns: Float64s | float) -> Any:
        """Reading of the reference clock at the instants `at_ns` of internal time, int64 ns since the epoch."""
        r = self.reference_state
        ahead_ns = r.offset_ns + r.skew_ppb / NS_PER_S * (at_ns - r.at_ns)
        return np.rint(at_ns + ahead_ns).astype(np.int64) + (r.base_ns + self.origin_ns)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "table": self.table.snapshot(),
            "origin_ns": self.origin_ns,
            "at": self.at_ns,
            "solved_at": self.solved_at_ns,
            "lag_ns": self.lag_ns,
            "reference": self.reference,
            "reference_state": list(self.reference_state),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.table.restore(state["table"])
        self.origin_ns, self.at_ns = int(state["origin_ns"]), float(state["at"])
        self.solved_at_ns = float(state["solved_at"])
        self.lag_ns, self.reference = float(state["lag_ns"]), int(state["reference"])
        self.reference_state = ReferenceState(*state["reference_state"])


class NamedEstimates:
    """Estimates of named clocks, as the edge work adopts them."""

    def __init__(self, names: list[str], estimates: ClockEstimates) -> None:
        self.names = names
        self.estimates = estimates

    @property
    def n(self) -> int:
        """Clocks known."""
        return len(self.names)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"names": self.names, "estimates": self.estimates.snapshot()}

    @classmethod
    def of(cls, state: dict[str, Any]) -> NamedEstimates:
        """What `snapshot` gave."""
        estimates = ClockEstimates()
        estimates.restore(state["estimates"])
        return cls(list(state["names"]), estimates)


class CorrectedRows(NamedTuple):
    """Exchanges of one message on the internal time line (ns since the stage's origin)."""

    session: Int64s
    at_ns: Float64s
    """t1 there."""
    newest: Float64s
    """t4 there; NaN for a lost one."""
    fwd_ns: Float64s
    """One-way delay t1 → t2, ns; NaN: not measured."""
    rev_ns: Float64s
    """One-way delay t3 → t4, ns; NaN: not measured."""
    clock_src: Int64s
    clock_dst: Int64s

    @classmethod
    def none(cls) -> CorrectedRows:
        """No rows."""
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(none, nothing, nothing, nothing, nothing, none, none)


def correct(
    x: AcceptedExchanges, session: Int64s, clock_src: Int64s, clock_dst: Int64s, estimates: ClockEstimates
) -> CorrectedRows:
    """Correct every stamp with its own clock's state: corrected = reading − offset − skew · (reading − at).

    Each of the four stamps is corrected at its own instant, so a skew does not leak into long delays or long
    turn-rounds. Differences of readings are taken as integers; only what a clock has run since `at_ns` is a float.
    """
    t = estimates.table
    base = t["base_ns"] + estimates.origin_ns
    offset_ns, rate = t["offset_ns"], t["skew_ppb"] / NS_PER_S
    src = base[clock_src], offset_ns[clock_src], rate[clock_src]
    dst = base[clock_dst], offset_ns[clock_dst], rate[clock_dst]

    def ran(stamp_ns: Int64s, end: tuple[Int64s, Float64s, Float64s]) -> tuple[Int64s, Float64s]:
        """Reading on the internal scale, and what is to be taken off it."""
        reading = stamp_ns - end[0]
        return reading, end[1] + end[2] * (reading - end[1] - estimates.at_ns)

    r1, off1 = ran(x.t1_ns, src)
    r2, off2 = ran(x.t2_ns, dst)
    r3, off3 = ran(x.t3_ns, dst)
    r4, off4 = ran(x.t4_ns, src)
    at_ns, newest = r1 - off1, r4 - off4
    fwd_ns = (r2 - r1) - (off2 - off1)
    rev_ns = (r4 - r3) - (off4 - off3)
    if not x.forward.all():
        fwd_ns[~x.forward] = np.nan
    if x.lost.any():
        newest[x.lost] = np.nan
    if not x.reverse.all():
        rev_ns[~x.reverse] = np.nan
    return CorrectedRows(session, at_ns, newest, fwd_ns, rev_ns, clock_src, clock_dst)


def pair_err(rows: CorrectedRows, variance: Float64s, sigmas: float) -> Float64s:
    """Error bar of each row's delays: the difference of its two clocks, `sigmas` standard deviations wide.

    `variance` is by clock, its own (`ClockEstimates`).
    """
    total = variance[rows.clock_src] + variance[rows.clock_dst]
    same: Bools = rows.clock_src == rows.clock_dst
    result: Float64s = np.where(same, 0.0, sigmas * np.sqrt(total))
    return result
