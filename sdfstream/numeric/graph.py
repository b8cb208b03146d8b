"""Clock differences on a graph: components, and conjugate gradients on its weighted Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

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
    label: Int64s | None = None,
) -> Float64s:
    """Solve (Λ + L) x = `right` by conjugate gradients with the diagonal as preconditioner.

    `start` warm-starts it; it stops when the preconditioned residual has shrunk by `tolerance`, or after `steps`.
    `label` (nodes,): nodes that no edge joins may have different ones. Each label's are then solved for themselves:
    with one tolerance for all, a part whose numbers are wild leaves the others where they were.
    """
    nodes = precision.size
    diagonal = precision + sums(edges.a, edges.precision, nodes) + sums(edges.b, edges.precision, nodes)
    inverse = 1.0 / diagonal
    x = np.zeros(nodes) if start is None else start.copy()
    apply = _operator(edges, precision)
    residual = right if start is None else right - apply(x)
    shaped = inverse * residual
    direction = shaped
    dot = _dot if label is None or not label.any() else _Dots(label).dot
    rho = dot(residual, shaped)
    whole = rho if start is None else dot(right, inverse * right)
    goal = tolerance * tolerance * np.maximum(whole, 1e-300)
    for _ in range(steps):
        if np.all(rho <= goal):
            break
        image = apply(direction)
        energy = dot(direction, image)
        going = (rho > goal) & (energy > _ROUNDING * dot(direction, diagonal * direction))
        if not np.any(going):
            break
        alpha = _ratio(rho, energy, going)
        x = x + alpha * direction
        residual = residual - alpha * image
        shaped = inverse * residual
        fresh = dot(residual, shaped)
        direction = shaped + _ratio(fresh, rho, going) * direction
        rho = fresh
    return x


def _operator(edges: WeightedEdges, precision: Float64s) -> Callable[[Float64s], Float64s]:
    """What takes a vector (nodes,) to (Λ + L) times it.

    The bulk of the work at 100,000 nodes: nothing of the edges' size is allocated, and clipping spares a second look at
    each index.
    """
    a, b, weight = edges.a, edges.b, edges.precision
    flow, at_a = np.empty(weight.size), np.empty(weight.size)

    def apply(v: Float64s) -> Float64s:
        np.take(v, b, out=flow, mode="clip")
        np.take(v, a, out=at_a, mode="clip")
        np.subtract(flow, at_a, out=flow)
        np.multiply(flow, weight, out=flow)
        result: Float64s = precision * v + sums(b, flow, v.size) - sums(a, flow, v.size)
        return result

    return apply


def _ratio(above: Any, below: Any, going: Any) -> Any:
    """Their ratio where `going`, else 0: there nothing moves any more."""
    return above / below if np.ndim(going) == 0 else np.divide(above, below, out=np.zeros(going.size), where=going)


class _Dots:
    """Inner products over the nodes of each label, by node."""

    def __init__(self, label: Int64s) -> None:
        self._label = label

    def dot(self, a: Float64s, b: Float64s) -> Float64s:
        """(nodes,) of those with the same label."""
        result: Float64s = sums(self._label, a * b, self._label.size)[self._label]
        return result


def _dot(a: Float64s, b: Float64s) -> float:
    """Inner product in this thread: `@` wakes a pool of them, which costs more, and adds up as many parts as it has."""
    return float(np.einsum("i,i->", a, b))
