"""Stamps onto one timeline, and from there one-way delays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.nodes import Nodes


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


def correct(x: Exchanges, session: Int64s, clock_src: Int64s, clock_dst: Int64s, nodes: Nodes, origin_ns: int) -> Rows:
    """Correct every stamp with its own clock's state: corrected = reading − offset − skew · (reading − at).

    Each of the four stamps is corrected at its own instant, so a skew does not leak into long delays or long
    turn-rounds. While a clock is not yet synced its state is 0 and the results are raw differences.
    """
    t = nodes.table
    base = t["base_ns"] + origin_ns
    rate = t["skew"] / NS_PER_S

    def place(stamp_ns: Int64s, base_ns: Int64s, offset: Float64s, slope: Float64s) -> Float64s:
        moved = (stamp_ns - base_ns) - offset
        result: Float64s = moved - slope * (moved - nodes.at)
        return result

    src = base[clock_src], t["offset"][clock_src], rate[clock_src]
    dst = base[clock_dst], t["offset"][clock_dst], rate[clock_dst]
    c1 = place(x.t1_ns, *src)
    c4 = place(x.t4_ns, *src)
    fwd = place(x.t2_ns, *dst) - c1
    rev = c4 - place(x.t3_ns, *dst)
    if not x.forward.all():
        fwd[~x.forward] = np.nan
    if x.lost.any():
        c4[x.lost] = np.nan
    if not x.reverse.all():
        rev[~x.reverse] = np.nan
    return Rows(session, c1, c4, fwd, rev, clock_src, clock_dst)


def pair_err(rows: Rows, variance: Float64s, sigmas: float) -> Float64s:
    """Error bar of each row's delays: the difference of its two clocks, `sigmas` standard deviations wide.

    `variance` is by clock, independent (`mesh.independent`).
    """
    total = variance[rows.clock_src] + variance[rows.clock_dst]
    same: Bools = rows.clock_src == rows.clock_dst
    result: Float64s = np.where(same, 0.0, sigmas * np.sqrt(total))
    return result
