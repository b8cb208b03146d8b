"""Stamps onto one timeline, and from there one-way delays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.belief import Beliefs
from sdfstream.sync.intake import Exchanges


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
