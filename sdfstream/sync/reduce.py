r"""From sites to reduced edges: all that the mesh needs to know of the sessions between two clocks, in one row.

A row is directed (sender's clock → reflector's clock), so all its sessions belong to one sending host, and the work on
sessions can be split over any number of processes by host without a sum being split.

Robustness. A session whose site lies off the mesh's last solution gets the weight of Cauchy's law,
:math:`w = 1 / (1 + r^2 / 9(P + \mathrm{usual}^2))`, so weights iterate once per tick (iteratively reweighted least
squares, warm-started by time).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.numeric.table import Table
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import UNKNOWN, YOUNG_BLOCKS

_SURPRISE: Final = 9.0
_SQUARE_GAIN: Final = 0.01
_BEYOND: Final = 4.0
"""A residual within two standard deviations is no disagreement."""
_BIAS_GAIN: Final = 1.0 / 20.0
_NOISE: Final = 36.0
_LOST: Final = 0.01
"""A site that knows less than a hundredth of what was unknown at first says nothing to the mesh."""


class Edges(NamedTuple):
    """Directed clock pairs, (pairs,); sums run over their sessions, each times its robust weight."""

    src: Int64s
    """Number of the sender's clock, in the sender's table of names."""
    dst: Int64s
    weight: Float64s
    """Σ 1/P of the offset, 1/ns²."""
    offset: Float64s
    """Weighted mean edge offset (dst − src) on the internal scale, ns."""
    skew_weight: Float64s
    """Σ 1/P of the slope."""
    skew: Float64s
    """Weighted mean slope, ns/s."""
    ixx: Float64s
    """Σ of the inverse covariance: offset."""
    ixg: Float64s
    igg: Float64s
    square: Float64s
    """Mean over sessions of what they lastingly disagree by beyond their own noise, ns²."""
    rest: Float64s
    """Mean over sessions of the residual's square now, ns²."""
    sessions: Float64s
    bad: Float64s
    """Sessions that lastingly disagree with the mesh."""
    heard: Bools
    """Some session was heard lately."""
    blocks: Float64s
    """Blocks heard in this tick."""
    tripped: Float64s
    """Sessions whose clock difference jumped in this tick."""
    step: Float64s
    """By how much at most, ns."""
    alarm: Float64s
    """Mean over sessions of the square of what packets surprised them by in this tick, ns² (`walls.gates`)."""


def empty() -> Edges:
    """No pairs."""
    kinds = {"src": np.int64, "dst": np.int64, "heard": np.bool_}
    return Edges._make(np.empty(0, kinds.get(name, np.float64)) for name in Edges._fields)


def residuals(t: Table, line: Float64s, usual: Float64s | float, calm: Bools, asked: Bools) -> Float64s:
    """Each session's robust weight; keeps what it lastingly disagrees by.

    `line` (sessions,): the mesh's difference; `calm`: sessions whose disagreement is to be kept; `asked`: those
    that the mesh has heard of.
    """
    rest = t["d"] - line
    own = t["dd"]
    known = calm & asked & (own < _LOST * UNKNOWN)
    square = rest * rest
    beyond = np.where(square > _BEYOND * own, square - own, 0.0)
    kept = t["square"] + _SQUARE_GAIN * (beyond - t["square"])
    # while a session makes up its mind it disagrees with much
    t["square"] = np.where(known, np.where(t["blocks"] > YOUNG_BLOCKS, kept, 0.0), t["square"])
    t["settled"] += known
    gain = np.maximum(1.0 / np.maximum(t["settled"], 1.0), _BIAS_GAIN)
    t["bias"] += np.where(known, gain * (rest - t["bias"]), 0.0)
    # a session whose floor is being broken does not know where it stands
    sound = t["breach"] == 0
    weight = np.where(asked, 1.0 / (1.0 + square / (_SURPRISE * (own + usual + 1.0))), 1.0)
    result: Float64s = np.where(sound, weight, 0.0)
    return result


def reduce(
    t: Table, trust: Float64s, line: Float64s, usual: float, now: float, came: Any, trips: Any, c: SyncConfig
) -> Edges:
    """Sum the sites up. `came`: sessions heard this tick, and all sessions' alarm; `trips`: (sessions, sizes) that
    jumped.
    """
    pair_of, inverse = np.unique((t["clock_src"] << 32) | t["clock_dst"], return_inverse=True)
    n = pair_of.size
    dd, dg, gg = t["dd"], t["dg"], np.maximum(t["gg"], 1e-9)
    det = np.maximum(dd * gg - dg * dg, 1e-12 * dd * gg)

    def total(column: Float64s) -> Float64s:
        return sums(inverse, column, n)

    trust = np.where(dd < _LOST * UNKNOWN, trust, 0.0)
    weight, skew_weight = total(trust / dd), total(trust / gg)
    sessions = np.maximum(total(np.ones(t.rows)), 1.0)
    rest = t["d"] - line
    jumped = np.zeros(t.rows)
    jumped[trips[0]] = trips[1]
    step = np.zeros(n)
    np.maximum.at(step, inverse, jumped)
    heard = np.zeros(t.rows)
    heard[came[0]] = 1.0
    lasting = (t["settled"] >= 1.0 / _BIAS_GAIN) & (np.abs(t["bias"]) > c.faulty_ns)
    lasting &= t["bias"] ** 2 > _NOISE * (dd + usual)
    return Edges(
        src=pair_of >> 32,
        dst=pair_of & 0xFFFFFFFF,
        weight=weight,
        offset=total(trust / dd * t["d"]) / np.where(weight > 0.0, weight, 1.0),
        skew_weight=skew_weight,
        skew=total(trust / gg * t["g"]) / np.where(skew_weight > 0.0, skew_weight, 1.0),
        ixx=total(trust * gg / det),
        ixg=total(-trust * dg / det),
        igg=total(trust * dd / det),
        square=total(t["square"]) / sessions,
        rest=total(np.where(trust > 0.0, rest * rest, 0.0)) / sessions,
        sessions=sessions,
        bad=total(lasting.astype(np.float64)),
        heard=total((t["heard_at"] >= now - c.holdover_after_ns).astype(np.float64)) > 0.0,
        blocks=total(heard),
        tripped=total((jumped > 0.0).astype(np.float64)),
        step=step,
        alarm=total(trust * came[1]) / sessions,
    )
