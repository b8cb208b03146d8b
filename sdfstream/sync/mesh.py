"""Clocks as members of a mesh: whose mean stands still, who is a stranger, who is to blame."""

from __future__ import annotations

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.reduce import Edges


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


def misfit(e: Edges, clocks: int) -> Float64s:
    r"""Variance of each clock's offset from what its n neighbours disagree about, which time does not average away.

    .. math:: \sum_{neighbours} \overline{\min(r^2, 16 \cdot \mathrm{median}\, r^2)} / n^2

    with :math:`r^2` the mean square misfit of each session between two clocks; NaN where a clock was not heard.
    Sessions of the same two clocks share both hosts' own asymmetry, so neighbours count, not sessions. The cap keeps
    sessions behind a queue, which the estimate hardly listens to, from widening the bound.
    """
    low, high, square, _ = _neighbours(e, e.square)
    square = np.minimum(square, 16.0 * np.median(square)) if square.size else square
    total = sums(low, square, clocks) + sums(high, square, clocks)
    count = np.bincount(low, minlength=clocks) + np.bincount(high, minlength=clocks)
    result: Float64s = np.where(count > 0, total / np.maximum(count, 1) ** 2, np.nan)
    return result


def _neighbours(e: Edges, column: Float64s) -> tuple[Int64s, Int64s, Float64s, Float64s]:
    """Pairs without direction that were heard lately: both clocks, mean of `column` over sessions, sessions."""
    use = e.heard
    src, dst, sessions = e.src[use], e.dst[use], e.sessions[use]
    keys, inverse = np.unique((np.minimum(src, dst) << 32) | np.maximum(src, dst), return_inverse=True)
    count = sums(inverse, sessions, keys.size)
    mean = sums(inverse, column[use] * sessions, keys.size) / np.maximum(count, 1.0)
    return keys >> 32, keys & 0xFFFFFFFF, mean, count


_AGAINST = 0.2


def blame(e: Edges, clocks: int) -> Bools:
    """The fewest clocks that explain the lastingly bad neighbourhoods: the worst first, whose others then tell no more.

    A clock that lies differently to every neighbour is fitted to the larger half of them, so a fifth of three or more,
    and two, suffice.
    """
    guilty = np.zeros(clocks, dtype=np.bool_)
    if not e.bad.any():
        return guilty
    low, high, share, _ = _neighbours(e, e.bad / np.maximum(e.sessions, 1.0))
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


def stepped(e: Edges, clocks: int) -> Float64s:
    """Size of the step each clock seems to have made lately, ns; 0 for most.

    Of a jumped session's two ends, the one most of whose live sessions jumped as well is to blame; both, when they are
    alike. No clock is blamed while half its sessions stand.
    """
    if not e.tripped.any():
        return np.zeros(clocks)
    live = np.where(e.heard, e.sessions, 0.0)
    of = sums(e.src, live, clocks) + sums(e.dst, live, clocks)
    jumped = sums(e.src, e.tripped, clocks) + sums(e.dst, e.tripped, clocks)
    share = jumped / np.maximum(of, 1.0)
    step = np.zeros(clocks)
    hit = e.tripped > 0.0
    src, dst, size = e.src[hit], e.dst[hit], e.step[hit]
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
