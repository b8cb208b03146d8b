"""Clock differences on a graph: components, and the weighted least squares that makes edges agree.

The house formulation is Bayesian least squares with a free gauge: nodes have independent prior variances about their
component's weighted mean, edges have measured differences. The normal matrix is the graph's weighted Laplacian plus
the priors' precisions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import sums

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

DENSE_NODES = 160
"""Up to this many nodes the normal matrix is inverted (N³ operations: some ms); beyond: conjugate gradients."""


class Edges(NamedTuple):
    """Edge e says: value[b] − value[a] = shift/precision, with variance 1/precision. All (edges,)."""

    a: Int64s
    b: Int64s
    precision: Float64s
    shift: Float64s


def components(nodes: int, a: Int64s, b: Int64s) -> Int64s:
    """Label of each node's connected component: the smallest node number in it.

    Parameters
    ----------
    nodes : int
    a, b : (edges,) int64
        Ends of each edge.

    Notes
    -----
    Minimum labels with pointer jumping: O((V + E) log V).

    Examples
    --------
    >>> components(4, np.array([1]), np.array([3]))
    array([0, 1, 2, 1])
    """
    label = np.arange(nodes)
    while True:
        before = label.copy()
        low = np.minimum(label[a], label[b])
        np.minimum.at(label, a, low)
        np.minimum.at(label, b, low)
        label = label[label]
        if np.array_equal(label, before):
            return label


def spread(variance: Float64s, label: Int64s, anchor: Bools) -> Float64s:
    r"""Independent variances D whose spread about the anchors' mean is `variance` V, component by component.

    With :math:`k` anchors and the gauge :math:`\sum_{anchors} x = 0`: :math:`V_i = D_i (1 - 2/k) + S` for an anchor and
    :math:`V_i = D_i + S` for another node, :math:`S = \sum_{anchors} D / k^2`. For two anchors V must be equal and D
    is set so. Needs k >= 2 (k = 1 is treated as a node of its own: D = V).

    Examples
    --------
    >>> spread(np.full(2, 100.0), np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
    array([200., 200.])
    """
    nodes = variance.size
    k = sums(label, anchor, nodes)[label]
    total = sums(label, anchor * variance, nodes)[label]
    many = np.maximum(k, 2.0)
    sum_d = total * many / (many - 1.0)
    s = sum_d / (many * many)
    anchored = np.where(many > 2.0, (variance - s) / np.maximum(1.0 - 2.0 / many, 1.0 / 3.0), sum_d / many)
    d = np.where(anchor, anchored, variance - s)
    return np.where(k >= 2.0, np.maximum(d, 0.1 * variance), variance)


def fuse(edges: Edges, prior: Float64s, label: Int64s, anchor: Bools) -> tuple[Float64s, Float64s]:
    r"""Posterior of the node values, in the gauge in which the anchors' mean is 0 in each component.

    Minimises :math:`\sum_e w_e (x_{b_e} - x_{a_e} - z_e)^2 + \sum_i x_i^2 / D_i`:

    .. math:: M^{-1} x = B^T W z, \qquad M^{-1} = \Lambda + L, \quad \Lambda = \mathrm{diag}(1/D_i), \quad L = B^T W B,

    then takes the anchors' mean out of the values and of their covariance :math:`H M H^T`.

    Parameters
    ----------
    edges : Edges
        Its edges must not leave a component of `label`; a component may be disconnected in it.
    prior : (nodes,) float64, ns²
        Variance about the anchors' mean. May be huge (a new clock).
    label : (nodes,) int64
        Component of each node.
    anchor : (nodes,) bool
        Nodes whose mean stays put: the well-known ones, two or more per component.

    Returns
    -------
    x, variance : (nodes,) float64, ns and ns²

    Notes
    -----
    Least squares spreads a loop's surplus over its edges. An asymmetry common to every path between two halves of the
    mesh (cut space) is invisible to any method [1]_. Cost: dense N³; beyond `DENSE_NODES` some tens of passes over the
    edges, the variances then by eliminating each neighbour on its own (a few per cent high at degree 10).

    References
    ----------
    .. [1] N. Freris, S. Graham, P. Kumar, "Fundamental limits on synchronizing clocks over networks", IEEE TAC 2011.

    Examples
    --------
    Two clocks, each ±10 about their mean, measured 8 apart to ±20: the prior is as good as the measurement.

    >>> e = Edges(np.array([0]), np.array([1]), np.array([1 / 400]), np.array([8 / 400]))
    >>> x, v = fuse(e, np.full(2, 100.0), np.zeros(2, dtype=np.int64), np.ones(2, dtype=bool))
    >>> x.round(6), v.round(6)
    (array([-2.,  2.]), array([50., 50.]))
    """
    nodes = prior.size
    precision = 1.0 / spread(prior, label, anchor)
    right = sums(edges.b, edges.shift, nodes) - sums(edges.a, edges.shift, nodes)
    diagonal = sums(edges.a, edges.precision, nodes) + sums(edges.b, edges.precision, nodes)
    if nodes <= DENSE_NODES:
        x, variance = _dense(edges, precision, diagonal, right, label, anchor)
    else:
        x, variance = conjugate_gradient(edges, precision, right), _diagonal(edges, precision, diagonal)
    k = np.maximum(sums(label, anchor, nodes), 1.0)
    mean = sums(label, anchor * x, nodes) / k
    return x - mean[label], np.clip(variance, 1e-3, prior)


def _dense(
    edges: Edges, precision: Float64s, diagonal: Float64s, right: Float64s, label: Int64s, anchor: Bools
) -> tuple[Float64s, Float64s]:
    """Exact. The gauge direction is stiffened before inverting, so that huge priors cost no digits.

    The stiffening only moves along the constants, which taking the anchors' mean out removes again.
    """
    nodes = precision.size
    matrix = np.zeros((nodes, nodes))
    np.subtract.at(matrix, (edges.a, edges.b), edges.precision)
    np.subtract.at(matrix, (edges.b, edges.a), edges.precision)
    matrix[np.arange(nodes), np.arange(nodes)] = diagonal + precision
    total = sums(label, precision, nodes)
    push = (sums(label, diagonal, nodes) / np.where(total > 0.0, total, 1.0) ** 2)[label]
    same = label[:, None] == label[None, :]
    matrix += same * (push * precision)[:, None] * precision[None, :]
    scale = 1.0 / np.sqrt(matrix.diagonal())
    inverse = np.linalg.inv(matrix * scale[:, None] * scale[None, :]) * scale[:, None] * scale[None, :]
    mean = same * (anchor / np.maximum(sums(label, anchor, nodes)[label], 1.0))[None, :]
    centred = inverse - mean @ inverse
    variance = centred.diagonal() - np.einsum("ij,ij->i", centred, mean)
    return inverse @ right, variance


def _diagonal(edges: Edges, precision: Float64s, diagonal: Float64s) -> Float64s:
    """Diagonal of (Λ + L)⁻¹, each neighbour j eliminated alone: w r / (w + r), r = all else that holds j."""
    nodes = precision.size
    total = precision + diagonal
    w = edges.precision
    through_b = w * (1.0 - w / total[edges.b])
    through_a = w * (1.0 - w / total[edges.a])
    held = precision + sums(edges.a, through_b, nodes) + sums(edges.b, through_a, nodes)
    result: Float64s = 1.0 / held
    return result


def conjugate_gradient(
    edges: Edges,
    precision: Float64s,
    right: Float64s,
    start: Float64s | None = None,
    tolerance: float = 1e-4,
    steps: int = 200,
) -> Float64s:
    """Solve (Λ + L) x = `right` by conjugate gradients with the diagonal as preconditioner.

    `start` warm-starts it; it stops when the preconditioned residual has shrunk by `tolerance`, or after `steps`.
    """
    nodes = precision.size
    a, b, weight = edges.a, edges.b, edges.precision
    diagonal = precision + sums(a, weight, nodes) + sums(b, weight, nodes)
    inverse = 1.0 / diagonal
    x = np.zeros(nodes) if start is None else start.copy()

    flow, at_a = np.empty(weight.size), np.empty(weight.size)

    def apply(v: Float64s) -> Float64s:
        # the bulk of the work at 100,000 nodes: nothing is allocated, and clipping spares a second look at each index
        np.take(v, b, out=flow, mode="clip")
        np.take(v, a, out=at_a, mode="clip")
        np.subtract(flow, at_a, out=flow)
        np.multiply(flow, weight, out=flow)
        result: Float64s = precision * v + sums(b, flow, nodes) - sums(a, flow, nodes)
        return result

    residual = right - apply(x)
    shaped = inverse * residual
    direction = shaped
    rho = _dot(residual, shaped)
    goal = tolerance * tolerance * max(_dot(right, inverse * right), 1e-300)
    for _ in range(steps):
        if rho <= goal:
            break
        image = apply(direction)
        energy = _dot(direction, image)
        if energy <= 0.0:  # only rounding is left, along the constants of a component that no prior holds
            break
        alpha = rho / energy
        x = x + alpha * direction
        residual = residual - alpha * image
        shaped = inverse * residual
        fresh = _dot(residual, shaped)
        direction = shaped + (fresh / rho) * direction
        rho = fresh
    return x


def _dot(a: Float64s, b: Float64s) -> float:
    """Inner product in this thread: `@` wakes a pool of them, which costs more, and adds up as many parts as it has."""
    return float(np.einsum("i,i->", a, b))
