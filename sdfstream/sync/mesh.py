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


def misfit(a: Int64s, b: Int64s, square: Float64s, clocks: int) -> Float64s:
    r"""Variance of each clock's offset from what its n neighbours disagree about, which time does not average away.

    .. math:: \sum_{neighbours} \overline{\min(r^2, 16 \cdot \mathrm{median}\, r^2)} / n^2

    with :math:`r^2` the mean square misfit (`square`) of each session between clocks a and b; NaN where a clock was not
    heard. Sessions of the same two clocks share both hosts' own asymmetry, so neighbours count, not sessions. The cap
    keeps sessions behind a queue, which the estimate hardly listens to, from widening the bound.
    """
    capped = np.minimum(square, 16.0 * np.median(square))
    keys, inverse = np.unique((np.minimum(a, b) << 32) | np.maximum(a, b), return_inverse=True)
    mean = sums(inverse, capped, keys.size) / np.bincount(inverse)
    low, high = keys >> 32, keys & 0xFFFFFFFF
    total = sums(low, mean, clocks) + sums(high, mean, clocks)
    count = np.bincount(low, minlength=clocks) + np.bincount(high, minlength=clocks)
    result: Float64s = np.where(count > 0, total / np.maximum(count, 1) ** 2, np.nan)
    return result


def independent(variance: Float64s, label: Int64s) -> Float64s:
    """Variances that add up to that of a difference of two clocks of one component."""
    return graph.spread(variance, label, anchors(variance, label))


def stepped(clocks: int, ends: tuple[Int64s, Int64s], tripped: Int64s, size: Float64s, heard: Int64s) -> Float64s:
    """Size of the step each clock seems to have made, ns; 0 for most.

    Of a broken session's two ends, the one most of whose sessions heard this tick broke as well is to blame; both, when
    they are alike. No clock is blamed while half its sessions stand.

    Parameters
    ----------
    ends : two (sessions,) int64
        Clock numbers of all sessions.
    tripped, size : (k,)
        Broken sessions and by how much, ns.
    heard : (m,) int64
        Sessions heard this tick.
    """
    of = sums(ends[0][heard], np.ones(heard.size), clocks) + sums(ends[1][heard], np.ones(heard.size), clocks)
    one = np.ones(tripped.size)
    share = (sums(ends[0][tripped], one, clocks) + sums(ends[1][tripped], one, clocks)) / np.maximum(of, 1.0)
    step = np.zeros(clocks)
    src, dst = ends[0][tripped], ends[1][tripped]
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


def reference(label: Int64s, alive: Bools, rank: Int64s) -> int:
    """The clock of smallest rank in the component with most live clocks (ties: the one that holds the smallest)."""
    size = np.bincount(label[alive], minlength=label.size)[label]
    candidates = np.flatnonzero(alive & (size == size[alive].max()))
    return int(candidates[np.argmin(rank[candidates])])
