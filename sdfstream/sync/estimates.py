"""Estimates of all clocks, as the mesh solved them one tick earlier, and stamps corrected by them.

Internal time. Every clock has an integer `base_ns` (near its first stamp minus bus time), so that reading − base lies
near bus time for every clock, however wrong. On that scale x is the clock's offset from the *ensemble*, a free common
gauge; what is published is the difference to the reference clock's x.

The covariance is that clock's *own part*: the variance of the difference of two clocks is the sum of both parts.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.edge_filter import UNKNOWN
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.reference import Place

COLUMNS: Final[dict[str, Any]] = {
    "base_ns": np.int64(0),
    "based": np.bool_(False),
    "offset": np.float64(0.0),
    "skew": np.float64(0.0),
    "xx": np.float64(UNKNOWN),
    "xg": np.float64(0.0),
    "gg": np.float64(0.0),
    "walk": np.float64(0.0),
    "phase": np.float64(0.0),
    "bound": np.float64(UNKNOWN),
}
"""offset (ns), skew (ns/s = ppb) and the three covariances of the own part; `walk` and `phase`: random walks of the
frequency (ns²/s³) and of the phase (ns²/s); `bound`: variance behind the published error, ns²."""


class Beliefs:
    """One row per clock, at one instant of internal time `at` (ns since `origin_ns`)."""

    def __init__(self) -> None:
        self.table = Table(COLUMNS)
        self.origin_ns = 0
        self.at = 0.0
        self.solved_at = 0.0
        """Instant of the last tick that the mesh had heard of, where these have been carried forward since."""
        self.lag_ns = 0.0
        """How far the newest evidence is behind the bus (`lag`)."""
        self.reference = 0
        """Number of the reference clock, or of the one by which the reference's component is told."""
        self.place = Place(0.0, 0, 0.0, 0.0)
        """Where the reference stood when the mesh was last solved."""

    @property
    def n(self) -> int:
        """Clocks known."""
        return self.table.rows

    @property
    def unbased(self) -> bool:
        """Whether a clock waits for its first stamp to be taken up by the mesh."""
        return not bool(self.table["based"].all())

    def advance(self, at: float) -> None:
        """Predict every clock forward to `at`."""
        dt = (at - self.at) / NS_PER_S
        self.at = at
        if dt <= 0.0:
            return
        t = self.table
        walk, phase, xg, gg = t["walk"], t["phase"], t["xg"].copy(), t["gg"].copy()
        t["offset"] += t["skew"] * dt
        grown = (2.0 * xg + gg * dt) * dt + phase * dt + walk * (dt**3 / 3.0)
        t["xx"] = np.minimum(t["xx"] + grown, UNKNOWN)
        t["xg"] = xg + gg * dt + walk * (dt * dt / 2.0)
        t["gg"] = gg + walk * dt

    def pair(self, src: Int64s, dst: Int64s) -> tuple[Float64s, Float64s]:
        """Predicted clock difference dst − src, and its variance, ns and ns²."""
        t = self.table
        return t["offset"][dst] - t["offset"][src], np.minimum(t["xx"][src] + t["xx"][dst], UNKNOWN)

    def both(self, name: str, src: Int64s, dst: Int64s) -> Float64s:
        """Sum of a variance or walk over both clocks of each session."""
        column = self.table[name]
        result: Float64s = column[src] + column[dst]
        return result

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {
            "table": self.table.snapshot(),
            "origin_ns": self.origin_ns,
            "at": self.at,
            "solved_at": self.solved_at,
            "lag_ns": self.lag_ns,
            "reference": self.reference,
            "place": list(self.place),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.table.restore(state["table"])
        self.origin_ns, self.at = int(state["origin_ns"]), float(state["at"])
        self.solved_at = float(state["solved_at"])
        self.lag_ns, self.reference = float(state["lag_ns"]), int(state["reference"])
        self.place = Place(*state["place"])


class Told:
    """Beliefs of named clocks, as the edge work takes them up."""

    def __init__(self, names: list[str], beliefs: Beliefs) -> None:
        self.names = names
        self.beliefs = beliefs

    @property
    def n(self) -> int:
        """Clocks known."""
        return len(self.names)

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return {"names": self.names, "beliefs": self.beliefs.snapshot()}

    @classmethod
    def of(cls, state: dict[str, Any]) -> Told:
        """What `snapshot` gave."""
        beliefs = Beliefs()
        beliefs.restore(state["beliefs"])
        return cls(list(state["names"]), beliefs)


class Rows(NamedTuple):
    """Exchanges of one message on the internal time line (ns since the stage's origin)."""

    session: Int64s
    at: Float64s
    """t1 there."""
    newest: Float64s
    """t4 there; NaN for a lost one."""
    fwd: Float64s
    """One-way delay t1 → t2, ns; NaN: not measured."""
    rev: Float64s
    """One-way delay t3 → t4, ns; NaN: not measured."""
    clock_src: Int64s
    clock_dst: Int64s

    @classmethod
    def none(cls) -> Rows:
        """No rows."""
        none, nothing = np.empty(0, dtype=np.int64), np.empty(0)
        return cls(none, nothing, nothing, nothing, nothing, none, none)


def correct(x: Exchanges, session: Int64s, clock_src: Int64s, clock_dst: Int64s, beliefs: Beliefs) -> Rows:
    """Correct every stamp with its own clock's state: corrected = reading − offset − skew · (reading − at).

    Each of the four stamps is corrected at its own instant, so a skew does not leak into long delays or long
    turn-rounds. Differences of readings are taken as integers; only what a clock has run since `at` is a float.
    """
    t = beliefs.table
    base = t["base_ns"] + beliefs.origin_ns
    offset, rate = t["offset"], t["skew"] / NS_PER_S
    src = base[clock_src], offset[clock_src], rate[clock_src]
    dst = base[clock_dst], offset[clock_dst], rate[clock_dst]

    def ran(stamp_ns: Int64s, end: tuple[Int64s, Float64s, Float64s]) -> tuple[Int64s, Float64s]:
        """Reading on the internal scale, and what is to be taken off it."""
        reading = stamp_ns - end[0]
        return reading, end[1] + end[2] * (reading - end[1] - beliefs.at)

    r1, off1 = ran(x.t1_ns, src)
    r2, off2 = ran(x.t2_ns, dst)
    r3, off3 = ran(x.t3_ns, dst)
    r4, off4 = ran(x.t4_ns, src)
    at, newest = r1 - off1, r4 - off4
    fwd = (r2 - r1) - (off2 - off1)
    rev = (r4 - r3) - (off4 - off3)
    if not x.forward.all():
        fwd[~x.forward] = np.nan
    if x.lost.any():
        newest[x.lost] = np.nan
    if not x.reverse.all():
        rev[~x.reverse] = np.nan
    return Rows(session, at, newest, fwd, rev, clock_src, clock_dst)


def pair_err(rows: Rows, variance: Float64s, sigmas: float) -> Float64s:
    """Error bar of each row's delays: the difference of its two clocks, `sigmas` standard deviations wide.

    `variance` is by clock, its own part (`belief`).
    """
    total = variance[rows.clock_src] + variance[rows.clock_dst]
    same: Bools = rows.clock_src == rows.clock_dst
    result: Float64s = np.where(same, 0.0, sigmas * np.sqrt(total))
    return result
