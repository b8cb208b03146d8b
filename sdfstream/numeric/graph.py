"""Clock differences on a graph: components, and conjugate gradients on its weighted Laplacian."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import sums

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]


_ROUNDING: Final = 1e-13
"""A direction with less of the diagonal's energy is a component's constant, which no prior holds, and rounding."""


class WeightedEdges(NamedTuple):
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


def conjugate_gradient(
    edges: WeightedEdges,
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

    residual = right if start is None else right - apply(x)
    shaped = inverse * residual
    direction = shaped
    rho = _dot(residual, shaped)
    whole = rho if start is None else _dot(right, inverse * right)
    goal = tolerance * tolerance * max(whole, 1e-300)
    for _ in range(steps):
        if rho <= goal:
            break
        image = apply(direction)
        energy = _dot(direction, image)
        if energy <= _ROUNDING * _dot(direction, diagonal * direction):
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
