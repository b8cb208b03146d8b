"""The network step: sessions' messages to news about every clock at once."""

from __future__ import annotations

import numpy as np

from sdfstream.numeric import graph
from sdfstream.numeric.group import sums
from sdfstream.records.units import Bools, Float64s, Int64s


def edges(src: Int64s, dst: Int64s, precision: Float64s, shift: Float64s) -> graph.Edges:
    """Add up messages about dst − src over all sessions of two clocks, in sorted order of the pairs."""
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    keys, inverse = np.unique((low << 32) | high, return_inverse=True)
    total = sums(inverse, precision, keys.size)
    signed = sums(inverse, np.where(src < dst, shift, -shift), keys.size)
    return graph.Edges(keys >> 32, keys & 0xFFFFFFFF, total, signed)


def anchors(variance: Float64s, label: Int64s) -> Bools:
    """Clocks whose mean makes a component's gauge: those as well known as most; all of them while fewer than two are.

    A new clock, or one long silent, does not push the others' time line when it comes in.
    """
    order = np.lexsort((variance, label))
    size = np.bincount(label, minlength=label.size)
    start = np.concatenate([[0], np.cumsum(size)])[:-1]
    typical = variance[order][np.minimum(start + size // 2, label.size - 1)][label]
    best = variance[order][np.minimum(start, label.size - 1)][label]
    known = variance <= 100.0 * np.minimum(typical, 100.0 * best)
    enough = sums(label, known, label.size)[label] >= 2
    result: Bools = known | ~enough
    return result


def news(e: graph.Edges, variance: Float64s, label: Int64s) -> tuple[Float64s, Float64s]:
    """What the edges say about each clock beyond its prior: a measurement of its correction and its variance.

    The posterior of `graph.fuse` divided by the prior; infinite variance where nothing was learned.
    """
    delta, after = graph.fuse(e, variance, label, anchors(variance, label))
    reached = np.zeros(variance.size, dtype=np.bool_)
    reached[e.a] = True
    reached[e.b] = True
    precision = np.maximum(1.0 / after - 1.0 / variance, 1e-6 / variance)
    # a Kalman update with (value, 1/precision) must move the clock by just delta
    value = delta * (1.0 / variance + precision) / precision
    return np.where(reached, value, 0.0), np.where(reached, 1.0 / precision, np.inf)


def independent(variance: Float64s, label: Int64s) -> Float64s:
    """Variances that add up to that of a difference of two clocks of one component."""
    return graph.spread(variance, label, anchors(variance, label))


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


def reference(label: Int64s, alive: Bools, rank: Int64s) -> int:
    """The clock of smallest rank in the component with most live clocks (ties: the one that holds the smallest)."""
    size = np.bincount(label[alive], minlength=label.size)[label]
    candidates = np.flatnonzero(alive & (size == size[alive].max()))
    return int(candidates[np.argmin(rank[candidates])])
