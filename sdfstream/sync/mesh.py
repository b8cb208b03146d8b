r"""The network step: weighted least squares over the clocks, from the edge filters of all sessions.

Session sums e between clocks a and b measure :math:`x_b - x_a = z_e` with weight :math:`w_e` (`reduce`, which makes the
weights robust). The solution minimises :math:`\sum_e w_e (x_b - x_a - z_e)^2`: a Laplacian system

.. math:: L y = B^T W (z - B x), \qquad L = B^T W B,

for the correction y of the predicted x, by conjugate gradients [1]_. There is no prior of the clocks: filters hold all
evidence, and a prior that takes the clocks' errors for independent would hold two halves of a mesh apart that agree
each within itself. The gauge is the trimmed mean of the well-known clocks, so that one that steps or joins does not
push the others. By Foster's theorem the mean effective resistance of the edges of a connected graph of n nodes is
(n − 1) over the number of edges; so each clock's own variance is (n − 1)/n over the weights at it, exact on
average, a few per cent off at degree 10. `reach` corrects that for clocks far from the reference.

References
----------
.. [1] P. Barooah, J. Hespanha, "Estimation on graphs from relative measurements", IEEE Control Systems 27(4), 2007.
.. [2] R. Foster, "The average impedance of an electrical network", 1949.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric import graph
from sdfstream.numeric.group import Distinct, group_values, median, quantile, sums
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.reduce import ReducedEdges

_TOLERANCE: Final = 1e-5
_TRIM: Final = 5.0
_ROUNDING: Final = 1e-14
"""What is left of the flows at a clock is nothing when it is less than this share of them."""
DENSE_CLOCKS: Final = 256
"""Up to this many clocks `reach` is computed (N³ operations, once a second)."""


class Solved(NamedTuple):
    """The mesh after the network step; all (clocks,)."""

    offset_ns: Float64s
    skew_ppb: Float64s
    offset_var_ns2: Float64s
    """Own covariance; NaN where the clock has no session."""
    offset_skew_cov: Float64s
    skew_var_ppb2: Float64s


def solve(e: ReducedEdges, offset_ns: Float64s, skew_ppb: Float64s, offset_var_ns2: Float64s, label: Int64s) -> Solved:
    """Correct the predicted `offset_ns` and `skew_ppb`; `offset_var_ns2` (clocks,) chooses the gauge: own variances.

    `label` (clocks,): components by the pairs that were heard lately. A pair across two of them was not: what its
    filters remember is in both predictions already, and each component is solved for itself.
    """
    clocks = offset_ns.size
    e = _within(e, label)
    anchor = anchors(offset_var_ns2, label)
    moved = _correct(e, e.weight, e.offset_ns, offset_ns, label)
    turned = _correct(e, e.skew_weight, e.skew_ppb, skew_ppb, label)
    at_both = [
        sums(e.src, column, clocks) + sums(e.dst, column, clocks)
        for column in (e.info_offset, e.info_cross, e.info_skew)
    ]
    ixx, ixg, igg = at_both
    held = ixx > 0.0
    det = np.where(held, np.maximum(ixx * igg - ixg * ixg, 1e-12 * ixx * igg), np.nan)
    size = np.bincount(label, minlength=clocks)[label]
    share = np.maximum(size - 1.0, 1.0) / np.maximum(size, 2.0)
    return Solved(
        offset_ns + _framed(moved, offset_var_ns2, label, anchor & held),
        skew_ppb + _framed(turned, np.ones(clocks), label, anchor & held),
        share * igg / det,
        -share * ixg / det,
        share * ixx / det,
    )


def _within(e: ReducedEdges, label: Int64s) -> ReducedEdges:
    """The pairs whose two clocks are of one component."""
    inner = label[e.src] == label[e.dst]
    return e if inner.all() else ReducedEdges._make(column[inner] for column in e)


def _correct(e: ReducedEdges, weight: Float64s, measured: Float64s, value: Float64s, label: Int64s) -> Float64s:
    """Least-squares correction of `value` from the pairs' measurements."""
    use = weight > 0.0
    a, b, w = e.src, e.dst, weight
    if not use.all():
        a, b, w, measured = a[use], b[use], w[use], measured[use]
    clocks = value.size
    flow = w * (measured - (value[b] - value[a]))
    right = sums(b, flow, clocks) - sums(a, flow, clocks)
    if (np.abs(right) <= _ROUNDING * (sums(a, np.abs(flow), clocks) + sums(b, np.abs(flow), clocks))).all():
        return np.zeros(clocks)
    loose = np.bincount(a, minlength=clocks) + np.bincount(b, minlength=clocks) == 0
    return graph.conjugate_gradient(
        graph.WeightedEdges(a, b, w, flow),
        loose.astype(np.float64),
        right,
        tolerance=_TOLERANCE,
        steps=100,
        label=label,
    )


def _framed(x: Float64s, variance: Float64s, label: Int64s, anchor: Bools) -> Float64s:
    """The corrections in a frame in which each component's anchors, without the wildest, do not move on average."""
    x = x - medians(x, label, anchor)
    size = np.abs(x[anchor])
    calm = anchor.copy()
    calm[anchor] = size <= _TRIM * (np.sqrt(variance[anchor]) + (median(size) if size.size else 0.0))
    calm = np.where(sums(label, calm, label.size)[label] >= 2, calm, anchor)
    count = np.maximum(sums(label, calm, label.size), 1.0)
    result: Float64s = x - (sums(label, calm * x, label.size) / count)[label]
    return result


def medians(x: Float64s, label: Int64s, anchor: Bools) -> Float64s:
    """Median over each component's anchors, by clock; 0 where there are none."""
    if not label.any():  # one component, as nearly always
        ordered = np.sort(x[anchor])
        if not ordered.size:
            return np.zeros(x.size)
        return np.full(x.size, 0.5 * (ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]))
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


def _medians_of_pairs(values: Float64s, label: Int64s) -> Float64s | float:
    """Median over the pairs with the same label, by pair."""
    if not label.any():
        return median(values)
    groups, ordered = group_values(label, values)
    result = np.empty(values.size)
    result[groups.order] = quantile(groups, ordered, 0.5).repeat(groups.size)
    return result


def reach(e: ReducedEdges, offset_var_ns2: Float64s, label: Int64s, reference: int) -> Float64s:
    """(clocks,) variance of each clock's difference to the reference over the sum of both own variances.

    Exact (the Laplacian grounded at the reference, inverted) up to `DENSE_CLOCKS` clocks, 1 beyond. Never below 1.
    """
    clocks = offset_var_ns2.size
    result = np.ones(clocks)
    mine = np.flatnonzero((label == label[reference]) & (np.arange(clocks) != reference))
    if clocks > DENSE_CLOCKS or not mine.size:
        return result
    laplacian = np.zeros((clocks, clocks))
    for a, b in ((e.src, e.dst), (e.dst, e.src)):
        np.subtract.at(laplacian, (a, b), e.weight)
        np.add.at(laplacian, (a, a), e.weight)
    grounded = laplacian[np.ix_(mine, mine)]
    scale = 1.0 / np.sqrt(np.maximum(grounded.diagonal(), 1e-30))
    try:
        inverse = np.linalg.inv(grounded * scale[:, None] * scale[None, :])
    except np.linalg.LinAlgError:  # tied to the reference by pairs without weight
        return result
    exact = inverse.diagonal() * scale * scale
    result[mine] = np.clip(exact / (offset_var_ns2[mine] + offset_var_ns2[reference]), 1.0, 1e6)
    return result


def anchors(variance: Float64s, label: Int64s) -> Bools:
    """Clocks whose mean makes a component's gauge: those as well known as most; all of them while fewer than two are.

    A new clock, or one long silent, does not push the others' time line when it comes in.
    """
    if label.size and not label.any():  # one component, as nearly always
        ordered = np.sort(variance)
        known = variance <= 100.0 * np.minimum(ordered[ordered.size // 2], 100.0 * ordered[0])
        return known if np.count_nonzero(known) >= 2 else np.ones_like(known)
    order = np.lexsort((variance, label))
    size = np.bincount(label, minlength=label.size)
    start = np.concatenate([[0], np.cumsum(size)])[:-1]
    typical = variance[order][np.minimum(start + size // 2, label.size - 1)][label]
    best = variance[order][np.minimum(start, label.size - 1)][label]
    known = variance <= 100.0 * np.minimum(typical, 100.0 * best)
    enough = sums(label, known, label.size)[label] >= 2
    result: Bools = known | ~enough
    return result


def misfit(e: ReducedEdges, label: Int64s, pairs: Distinct | None = None) -> Float64s:
    r"""Variance of each clock's offset from what its n neighbours disagree about, which time does not average away.

    .. math:: \sum_{neighbours} \overline{\min(r^2, 16 \cdot \mathrm{median}\, r^2)} / n^2

    with :math:`r^2` the mean square misfit of each session between two clocks; NaN where a clock had no samples.
    Sessions of the same two clocks share both hosts' own asymmetry, so neighbours count, not sessions. The cap keeps
    sessions behind a queue, which the estimate hardly listens to, from widening the bound; its median is that of the
    component (`label`, (clocks,)).
    """
    clocks = label.size
    low, high, square, _ = _neighbours(e, e.disagreement_ns2, pairs)
    if square.size:
        square = np.minimum(square, 16.0 * _medians_of_pairs(square, label[low]))
    total = sums(low, square, clocks) + sums(high, square, clocks)
    count = np.bincount(low, minlength=clocks) + np.bincount(high, minlength=clocks)
    result: Float64s = np.where(count > 0, total / np.maximum(count, 1) ** 2, np.nan)
    return result


def _neighbours(e: ReducedEdges, column: Float64s, pairs: Distinct | None) -> tuple[Int64s, Int64s, Float64s, Float64s]:
    """Recent pairs without direction: both clocks, mean of `column` over sessions, sessions."""
    use = e.recent
    src, dst, sessions = e.src[use], e.dst[use], e.sessions[use]
    keys, inverse = (pairs or Distinct()).of((np.minimum(src, dst) << 32) | np.maximum(src, dst))
    count = sums(inverse, sessions, keys.size)
    mean = sums(inverse, column[use] * sessions, keys.size) / np.maximum(count, 1.0)
    return keys >> 32, keys & 0xFFFFFFFF, mean, count


_AGAINST = 0.2


def blame(e: ReducedEdges, clocks: int, pairs: Distinct | None = None) -> Bools:
    """The fewest clocks that explain the lastingly bad neighbourhoods: the worst first, whose pairs then count no more.

    A clock that lies differently to every neighbour is fitted to the larger half of them, so a fifth of three or more,
    and two, suffice.
    """
    guilty = np.zeros(clocks, dtype=np.bool_)
    if not e.disagreeing.any():
        return guilty
    low, high, share, _ = _neighbours(e, e.disagreeing / np.maximum(e.sessions, 1.0), pairs)
    bad = share > 0.5
    of = np.bincount(low, minlength=clocks) + np.bincount(high, minlength=clocks)
    while bad.any():
        against = np.bincount(low[bad], minlength=clocks) + np.bincount(high[bad], minlength=clocks)
        against = np.where((of >= 3) & (against >= 2) & (against >= _AGAINST * of), against, 0)
        worst = int(np.argmax(against))
        if not against[worst]:
            break
        guilty[worst] = True
        bad &= (low != worst) & (high != worst)
    return guilty


def stepped(e: ReducedEdges, clocks: int) -> Float64s:
    """Size of the step each clock seems to have made lately, ns; 0 for most.

    Of a jumped session's two ends, the one most of whose live sessions jumped as well is to blame; both, when they are
    alike. No clock is blamed while half its sessions stand.
    """
    if not e.jumped.any():
        return np.zeros(clocks)
    live = np.where(e.recent, e.sessions, 0.0)
    of = sums(e.src, live, clocks) + sums(e.dst, live, clocks)
    jumped = sums(e.src, e.jumped, clocks) + sums(e.dst, e.jumped, clocks)
    share = jumped / np.maximum(of, 1.0)
    step = np.zeros(clocks)
    hit = e.jumped > 0.0
    src, dst, size = e.src[hit], e.dst[hit], e.step_ns[hit]
    for clock, other in ((src, dst), (dst, src)):
        guilty = (share[clock] > 0.5) & (share[clock] >= share[other])
        np.maximum.at(step, clock[guilty], size[guilty])
    return step


def strangers(before: Int64s, now: Int64s, reference: int) -> Bools:
    """Clocks whose old component was absorbed: in each new component all but the largest old one (or the reference's).

    Their states stand on a gauge of their own.
    """
    n = now.size
    pairs, inverse, size = np.unique(now * n + before, return_inverse=True, return_counts=True)
    size[inverse[reference]] += n
    order = np.lexsort((-size, pairs // n))
    first = np.unique((pairs // n)[order], return_index=True)[1]
    main = np.zeros(pairs.size, dtype=np.bool_)
    main[order[first]] = True
    result: Bools = ~main[inverse]
    return result
