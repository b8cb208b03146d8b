r"""The network step: robust weighted least squares over the clocks, from what every live session last said.

With x the corrections of the predicted offsets, session e between clocks a and b says :math:`x_b - x_a = z_e` with
variance :math:`R_e`. The solution minimises :math:`\sum_e \rho((x_b - x_a - z_e)^2 / s_e^2)` by iteratively reweighted
least squares (Cauchy's weights; those of the last tick are the start), without any prior of the clocks: a prior that
takes their errors for independent would hold two halves of a mesh apart that agree each within itself. The gauge is the
trimmed mean of the well-known clocks, so that one that steps or joins does not push the others.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric import graph
from sdfstream.numeric.group import sums
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.sync import mesh
from sdfstream.sync.nodes import Measured, Nodes
from sdfstream.sync.table import Table

_ROUNDS: Final = 2
_SURPRISE: Final = 9.0
"""A message whose residual's square is so many times what is expected has half the weight."""
_LIVE_TICKS: Final = 10
"""What a session said is used until it was not looked at again for so long (a look is due every 8 ticks)."""
_FREE: Final = 1e16
_TRIM: Final = 5.0
_MEMORY: Final = 1.0 / 20.0
_LEAST_SCALE: Final = 1.0
_AGAINST: Final = 0.2


def agree(nodes: Nodes, table: Table, ticks: int) -> Measured | None:
    """Solve for all clocks; None when no session is live. Leaves residuals and weights with the sessions."""
    src, dst = table["clock_src"], table["clock_dst"]
    live = np.flatnonzero((ticks - table["said"] <= _LIVE_TICKS) & (src != dst) & (table["z_variance"] < np.inf))
    if not live.size:
        return None
    a, b = src[live], dst[live]
    t = nodes.table
    age_s = (nodes.at - table["z_at"][live]) / NS_PER_S
    z = table["z"][live] - (t["offset"][b] - t["offset"][a] - (t["skew"][b] - t["skew"][a]) * age_s)
    variance = table["z_variance"][live]
    anchor = mesh.anchors(t["variance"], nodes.label)
    free = np.full(nodes.n, _FREE)
    weight = table["trust"][live]
    for _ in range(_ROUNDS):
        precision = weight / variance
        x, after = graph.fuse(mesh.edges(a, b, precision, precision * z), free, nodes.label, anchor)
        rest = z - (x[b] - x[a])
        usual = np.median(rest * rest)
        weight = 1.0 / (1.0 + rest**2 / (_SURPRISE * (variance + usual + _LEAST_SCALE)))
    table["trust"][live] = weight
    _remember(table, live, rest, variance)
    x = _framed(x, t["variance"], nodes.label, anchor)
    news = np.where(table["said"][live] == ticks, table["z_news"][live], 0.0)
    return _measured(x, after, a, b, precision, news, age_s, table["z_span"][live])


def _remember(table: Table, live: Int64s, rest: Float64s, variance: Float64s) -> None:
    """Mean residual of each session and its mean square beyond what its own noise explains."""
    table["settled"][live] += 1.0
    gain = np.maximum(1.0 / table["settled"][live], _MEMORY)
    beyond = np.maximum(rest * rest - variance, 0.0)
    table["misfit"][live] += gain * (beyond - table["misfit"][live])
    table["bias"][live] += gain * (rest - table["bias"][live])


def _framed(x: Float64s, variance: Float64s, label: Int64s, anchor: Bools) -> Float64s:
    """The corrections in a frame in which each component's anchors, without the wildest, do not move on average."""
    x = x - _median(x, label, anchor)
    size = np.abs(x[anchor])
    calm = anchor.copy()
    calm[anchor] = size <= _TRIM * (np.sqrt(variance[anchor]) + (np.median(size) if size.size else 0.0))
    calm = np.where(sums(label, calm, label.size)[label] >= 2, calm, anchor)
    count = np.maximum(sums(label, calm, label.size), 1.0)
    result: Float64s = x - (sums(label, calm * x, label.size) / count)[label]
    return result


def _median(x: Float64s, label: Int64s, anchor: Bools) -> Float64s:
    """Median over each component's anchors, by clock; 0 where there are none."""
    members = np.flatnonzero(anchor)
    order = members[np.lexsort((x[members], label[members]))]
    size = np.bincount(label[members], minlength=label.size)
    start = np.cumsum(size) - size
    low, high = start + np.maximum(size - 1, 0) // 2, start + size // 2
    most = max(order.size - 1, 0)
    if not order.size:
        return np.zeros(x.size)
    middle = 0.5 * (x[order[np.minimum(low, most)]] + x[order[np.minimum(high, most)]])
    result: Float64s = np.where(size > 0, middle, 0.0)[label]
    return result


def _measured(
    x: Float64s,
    after: Float64s,
    a: Int64s,
    b: Int64s,
    precision: Float64s,
    news: Float64s,
    age_s: Float64s,
    span_s: Float64s,
) -> Measured:
    """The solution as a measurement of every clock, with the age, reach and share of news of the sessions behind it."""
    clocks = x.size

    def both(column: Float64s) -> Float64s:
        return sums(a, precision * column, clocks) + sums(b, precision * column, clocks)

    total = both(np.ones(a.size))
    safe = np.where(total > 0.0, total, 1.0)
    share = both(news) / safe
    heard = share > 0.0
    variance = np.where(heard, after / np.where(heard, share, 1.0), np.inf)
    looked = both((news > 0.0).astype(np.float64))
    each = np.where(heard, share * total / np.where(looked > 0.0, looked, 1.0), 0.0)
    return Measured(np.where(heard, x, 0.0), variance, share, each, both(age_s) / safe, both(span_s) / safe)


def faulty(table: Table, nodes: Nodes, ticks: int, least_ns: float) -> Bools:
    """Clocks about which several neighbours disagree with the rest, lastingly (`_blame`).

    A session disagrees when its mean residual is many times its noise, and at least `least_ns`.
    """
    src, dst = table["clock_src"], table["clock_dst"]
    live = np.flatnonzero((ticks - table["said"] <= _LIVE_TICKS) & (src != dst) & (table["settled"] >= 1.0 / _MEMORY))
    if not live.size:
        return np.zeros(nodes.n, dtype=np.bool_)
    bias, variance = table["bias"][live], table["z_variance"][live]
    usual = np.median(bias * bias)
    bad = (np.abs(bias) > least_ns) & (bias**2 > 36.0 * (variance + usual))
    keys = np.unique((np.minimum(src, dst)[live] << 32) | np.maximum(src, dst)[live], return_inverse=True)
    share = sums(keys[1], bad, keys[0].size) / np.bincount(keys[1])
    return _blame(keys[0] >> 32, keys[0] & 0xFFFFFFFF, share > 0.5, nodes.n)


def _blame(low: Int64s, high: Int64s, bad: Bools, clocks: int) -> Bools:
    """The fewest clocks that explain the bad neighbourhoods: the worst first, whose neighbourhoods then tell no more.

    A clock that lies differently to every neighbour is fitted to the larger half of them, so a fifth of three or more,
    and two, suffice.
    """
    guilty = np.zeros(clocks, dtype=np.bool_)
    of = np.bincount(low, minlength=clocks) + np.bincount(high, minlength=clocks)
    bad = bad.copy()
    while bad.any():
        against = np.bincount(low[bad], minlength=clocks) + np.bincount(high[bad], minlength=clocks)
        against = np.where((of >= 3) & (against >= 2) & (against >= _AGAINST * of), against, 0)
        worst = int(np.argmax(against))
        if not against[worst]:
            break
        guilty[worst] = True
        bad &= (low != worst) & (high != worst)
    return guilty
