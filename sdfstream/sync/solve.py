r"""The network step: weighted least squares over the clocks, from the sites of all sessions.

Session sums e between clocks a and b say :math:`x_b - x_a = z_e` with weight :math:`w_e` (`reduce`, which makes the
weights robust). The solution minimises :math:`\sum_e w_e (x_b - x_a - z_e)^2`: a Laplacian system

.. math:: L y = B^T W (z - B x), \qquad L = B^T W B,

for the correction y of the predicted x, by conjugate gradients [1]_. There is no prior of the clocks: sites hold all
evidence, and a prior that takes the clocks' errors for independent would hold two halves of a mesh apart that agree
each within itself. The gauge is the trimmed mean of the well-known clocks, so that one that steps or joins does not
push the others. By Foster's theorem the mean effective resistance of the edges of a connected graph of n nodes is
(n − 1) over the number of edges; so each clock's own part of the variance is (n − 1)/n over the weights at it, exact on
average, a few per cent off at degree 10. `reach` says by how much more a clock far from the reference is off.

References
----------
.. [1] P. Barooah, J. Hespanha, "Estimation on graphs from relative measurements", IEEE Control Systems 27(4), 2007.
.. [2] R. Foster, "The average impedance of an electrical network", 1949.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric import graph
from sdfstream.numeric.group import sums
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync import mesh
from sdfstream.sync.reduce import Edges

_TOLERANCE: Final = 1e-5
_TRIM: Final = 5.0
_ROUNDING: Final = 1e-14
"""What is left of the flows at a clock is nothing when it is less than this share of them."""
DENSE_CLOCKS: Final = 256
"""Up to this many clocks `reach` is computed (N³ operations, once a second)."""


class Solved(NamedTuple):
    """The mesh after the network step; all (clocks,)."""

    offset: Float64s
    skew: Float64s
    xx: Float64s
    """Own part of the covariance; NaN where no session holds the clock."""
    xg: Float64s
    gg: Float64s


def solve(e: Edges, offset: Float64s, skew: Float64s, xx: Float64s, label: Int64s) -> Solved:
    """Correct the predicted `offset` and `skew`; `xx` (clocks,) predicted own variances, which choose the gauge."""
    clocks = offset.size
    anchor = mesh.anchors(xx, label)
    moved = _correct(e, e.weight, e.offset, offset)
    turned = _correct(e, e.skew_weight, e.skew, skew)
    at_both = [sums(e.src, column, clocks) + sums(e.dst, column, clocks) for column in (e.ixx, e.ixg, e.igg)]
    ixx, ixg, igg = at_both
    held = ixx > 0.0
    det = np.where(held, np.maximum(ixx * igg - ixg * ixg, 1e-12 * ixx * igg), np.nan)
    size = np.bincount(label, minlength=clocks)[label]
    share = np.maximum(size - 1.0, 1.0) / np.maximum(size, 2.0)
    return Solved(
        offset + _framed(moved, xx, label, anchor & held),
        skew + _framed(turned, np.ones(clocks), label, anchor & held),
        share * igg / det,
        -share * ixg / det,
        share * ixx / det,
    )


def _correct(e: Edges, weight: Float64s, said: Float64s, value: Float64s) -> Float64s:
    """Least-squares correction of `value` from what the pairs said."""
    use = weight > 0.0
    a, b, w = e.src[use], e.dst[use], weight[use]
    clocks = value.size
    flow = w * (said[use] - (value[b] - value[a]))
    right = sums(b, flow, clocks) - sums(a, flow, clocks)
    if (np.abs(right) <= _ROUNDING * (sums(a, np.abs(flow), clocks) + sums(b, np.abs(flow), clocks))).all():
        return np.zeros(clocks)
    loose = np.bincount(a, minlength=clocks) + np.bincount(b, minlength=clocks) == 0
    return graph.conjugate_gradient(
        graph.Edges(a, b, w, flow), loose.astype(np.float64), right, tolerance=_TOLERANCE, steps=100
    )


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


def reach(e: Edges, xx: Float64s, label: Int64s, reference: int) -> Float64s:
    """(clocks,) by how much the variance of each clock's difference to the reference exceeds the sum of both own parts.

    Exact (the Laplacian grounded at the reference, inverted) up to `DENSE_CLOCKS` clocks, 1 beyond. Never below 1.
    """
    clocks = xx.size
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
    except np.linalg.LinAlgError:  # tied to the reference by nothing that says anything
        return result
    exact = inverse.diagonal() * scale * scale
    result[mine] = np.clip(exact / (xx[mine] + xx[reference]), 1.0, 1e6)
    return result
