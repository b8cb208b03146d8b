r"""From edge filters to reduced edges: all that the mesh needs of the sessions between two clocks, in one row.

A row is directed (sender's clock → reflector's clock), so all its sessions belong to one sending host, and the work on
sessions can be split over any number of processes by host without a sum being split.

Robustness. A session whose offset lies off the mesh's last solution gets the weight of Cauchy's law,
:math:`w = 1 / (1 + r^2 / 9(P + \mathrm{usual_ns2}^2))`, so weights iterate once per tick (iteratively reweighted least
squares, warm-started by time).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.group import Distinct, sums
from sdfstream.numeric.table import Table
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import YOUNG_BLOCKS
from sdfstream.sync.sessions import UNKNOWN

_SURPRISE: Final = 9.0
_SQUARE_GAIN: Final = 0.01
_BEYOND: Final = 4.0
"""A residual within two standard deviations is no disagreement."""
_BIAS_GAIN: Final = 1.0 / 20.0
_NOISE: Final = 36.0
_LOST: Final = 0.01
"""A filter whose variance is above this share of `UNKNOWN` has no weight."""


class ReducedEdges(NamedTuple):
    """Directed clock pairs, (pairs,); sums run over their sessions, each times its robust weight."""

    src: Int64s
    """Number of the sender's clock, in the sender's table of names."""
    dst: Int64s
    weight: Float64s
    """Σ 1/P of the offset, 1/ns²."""
    offset_ns: Float64s
    """Weighted mean edge offset (dst − src) on the internal scale, ns, less what drifts made of it (`less_drifted`)."""
    skew_weight: Float64s
    """Σ 1/P of the slope."""
    skew_ppb: Float64s
    """Weighted mean slope, ns/s, less what drifts made of it."""
    info_offset: Float64s
    """Σ of the inverse covariance: offset."""
    info_cross: Float64s
    info_skew: Float64s
    disagreement_ns2: Float64s
    """Mean over sessions of what they lastingly disagree by beyond their own noise, ns²."""
    residual_ns2: Float64s
    """Mean over sessions of the residual's square now, ns²."""
    sessions: Float64s
    disagreeing: Float64s
    """Sessions that lastingly disagree with the mesh."""
    recent: Bools
    """Some session has recent blocks."""
    blocks: Float64s
    """Blocks of this tick."""
    jumped: Float64s
    """Sessions whose clock difference jumped in this tick."""
    step_ns: Float64s
    """By how much at most, ns."""
    surprise_ns2: Float64s
    """Mean over sessions of the square of what packets surprised them by in this tick, ns² (`edge_filter.gate`)."""
    breached: Float64s
    """Sessions whose block of this tick is broken: the packets contradict all that is known."""
    breach_ns2: Float64s
    """Sum over them of the square of by how much, ns²."""


class TickEvidence(NamedTuple):
    """What a tick's packets did to the sessions."""

    session: Int64s
    """Sessions with a block."""
    surprise_ns2: Float64s
    """(sessions,) of all sessions."""
    breach_ns2: Float64s
    """(sessions,) likewise; 0: its block is not broken."""


def restored(columns: Sequence[Any]) -> ReducedEdges:
    """From a snapshot's columns; those that an earlier version did not know are 0."""
    missing = len(ReducedEdges._fields) - len(columns)
    return ReducedEdges(*columns, *(np.zeros(columns[0].size) for _ in range(missing)))


def empty() -> ReducedEdges:
    """No pairs."""
    kinds = {"src": np.int64, "dst": np.int64, "recent": np.bool_}
    return ReducedEdges._make(np.empty(0, kinds.get(name, np.float64)) for name in ReducedEdges._fields)


def less_drifted(e: ReducedEdges, drifted_ns: Float64s, drifted_ppb: Float64s) -> ReducedEdges:
    """Without what drifts have made of the clocks (`drift`): the mesh may know more of it than the sessions do yet."""
    return e._replace(
        offset_ns=e.offset_ns - (drifted_ns[e.dst] - drifted_ns[e.src]),
        skew_ppb=e.skew_ppb - (drifted_ppb[e.dst] - drifted_ppb[e.src]),
    )


def residuals(t: Table, line: Float64s, usual_ns2: Float64s | float, calm: Bools, asked: Bools) -> Float64s:
    """Each session's robust weight; updates its lasting disagreement.

    `line` (sessions,): the mesh's difference; `calm`: sessions whose disagreement counts; `asked`: those
    that the mesh has solved with.
    """
    residual_ns = t["offset_ns"] - line
    own = t["offset_var_ns2"]
    known = calm & asked & (own < _LOST * UNKNOWN)
    square = residual_ns * residual_ns
    beyond = np.where(square > _BEYOND * own, square - own, 0.0)
    mean = t["disagreement_ns2"] + _SQUARE_GAIN * (beyond - t["disagreement_ns2"])
    # while a session makes up its mind it disagrees with much
    t["disagreement_ns2"] = np.where(known, np.where(t["blocks"] > YOUNG_BLOCKS, mean, 0.0), t["disagreement_ns2"])
    t["assessed_ticks"] += known
    gain = np.maximum(1.0 / np.maximum(t["assessed_ticks"], 1.0), _BIAS_GAIN)
    t["bias_ns"] += np.where(known, gain * (residual_ns - t["bias_ns"]), 0.0)
    t["bias_var_ns2"] += np.where(known, gain * (own - t["bias_var_ns2"]), 0.0)
    # a session whose floor is being broken does not know where it stands
    sound = t["breached_blocks"] == 0
    weight = np.where(asked, 1.0 / (1.0 + square / (_SURPRISE * (own + usual_ns2 + 1.0))), 1.0)
    result: Float64s = np.where(sound, weight, 0.0)
    return result


def reduce(
    t: Table,
    robust: Float64s,
    line: Float64s,
    usual_ns2: float,
    now: float,
    received: TickEvidence,
    trips: Any,
    c: SyncConfig,
    pairs: Distinct | None = None,
) -> ReducedEdges:
    """Sum the edge filters up per directed clock pair; `trips`: (sessions, ns) that jumped."""
    pair_of, inverse = (pairs or Distinct()).of((t["clock_src"] << 32) | t["clock_dst"])
    n = pair_of.size
    dd, dg, gg = t["offset_var_ns2"], t["offset_slope_cov"], np.maximum(t["slope_var_ppb2"], 1e-9)
    det = np.maximum(dd * gg - dg * dg, 1e-12 * dd * gg)

    def total(column: Float64s) -> Float64s:
        return sums(inverse, column, n)

    robust = np.where(dd < _LOST * UNKNOWN, robust, 0.0)
    weight, skew_weight = total(robust / dd), total(robust / gg)
    sessions = np.maximum(total(np.ones(t.rows)), 1.0)
    residual_ns = t["offset_ns"] - line
    jumped, step, present = np.zeros(t.rows), np.zeros(n), np.zeros(t.rows)
    jumped[trips[0]], present[received.session] = trips[1], 1.0
    np.maximum.at(step, inverse, jumped)
    return ReducedEdges(
        src=pair_of >> 32,
        dst=pair_of & 0xFFFFFFFF,
        weight=weight,
        offset_ns=total(robust / dd * t["offset_ns"]) / np.where(weight > 0.0, weight, 1.0),
        skew_weight=skew_weight,
        skew_ppb=total(robust / gg * t["slope_ppb"]) / np.where(skew_weight > 0.0, skew_weight, 1.0),
        info_offset=total(robust * gg / det),
        info_cross=total(-robust * dg / det),
        info_skew=total(robust * dd / det),
        disagreement_ns2=total(t["disagreement_ns2"]) / sessions,
        residual_ns2=total(np.where(robust > 0.0, residual_ns * residual_ns, 0.0)) / sessions,
        sessions=sessions,
        disagreeing=total(_lasting(t, usual_ns2, c).astype(np.float64)),
        recent=total((t["received_at_ns"] >= now - c.holdover_after_ns).astype(np.float64)) > 0.0,
        blocks=total(present),
        jumped=total((jumped > 0.0).astype(np.float64)),
        step_ns=step,
        surprise_ns2=total(robust * received.surprise_ns2) / sessions,
        breached=total((received.breach_ns2 > 0.0).astype(np.float64)),
        breach_ns2=total(received.breach_ns2),
    )


def _lasting(t: Table, usual_ns2: float, c: SyncConfig) -> Bools:
    """Which sessions lastingly disagree with the mesh, by more than they were sure of while they did."""
    var_ns2 = np.maximum(t["offset_var_ns2"], t["bias_var_ns2"])
    lasting = (t["assessed_ticks"] >= 1.0 / _BIAS_GAIN) & (np.abs(t["bias_ns"]) > c.faulty_ns)
    result: Bools = lasting & (t["bias_ns"] ** 2 > _NOISE * (var_ns2 + usual_ns2))
    return result
