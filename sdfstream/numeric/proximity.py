"""Which NICs share a switch, by their least round trips: a way over one switch is shorter than one over several.

The least round trip of a pair is taken for a share of each of its two NICs (host, stamps, cable) and what lies between:

    floor(a, b) = h(a) + h(b) + between(a, b)

Three ways of telling lead to groups. Plainly, where NICs' shares differ little: the floors themselves fall apart, and
pairs below a gap make groups of most NICs, without a pair above it inside. Shares alone never look so: with a, b and
c, d near, floor(a, c) + floor(b, d) would be as small as floor(a, b) + floor(c, d) (four-point condition). What is
plain is taken, and others speak only of NICs that it leaves alone and of pairs that nobody probes. Where nothing is
plain, what both others agree on is taken; of a pair that one has not looked at the other speaks alone.

By a gap: h is each NIC's median over its pairs, in turns (median polish, Tukey 1977), begun with means. What is left
falls into a lower and an upper part where some pairs share a switch. The two are told apart by the widest gap among the
lower values, if it is several times what values within the parts differ by; the lower is parted again where three tiers
make two of it. Of a NIC with few pairs half may be near, which the median then takes for the NIC's own share: where the
gap is not clear, the shares are worked out once more as though what lies below it were near.

By what NICs have in common with all others, where most pairs are known: of two that share a switch,
floor(a, k) − floor(b, k) is the same for every k, whatever lies beyond that switch (as for the siblings of an additive
tree, Buneman 1971); of two that do not, it is not where k shares a switch with either. So it does not matter how many
tiers there are. But a k that tells two apart may be one of those not probed.

Where few pairs that share a switch are probed, the first gap of the floors still counts if it stands out as only tiers
do: then a further one, which parts pods, is not taken for it. Where the floors' gap is not clear, groups may still be
closed (`closed_groups`), which counts as plain. If nothing is clear, nothing is inferred. Fragments of leaves that
nobody probes between are joined by their size (`leaf_sizes`).
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.closed_groups import closed_groups
from sdfstream.numeric.graph import components
from sdfstream.numeric.group import group, group_values, quantile
from sdfstream.numeric.leaf_sizes import with_whole_leaves

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_ROUNDS: Final = 30
_LEAST_GAP_NS: Final = 500.0
"""Two more switches each way take longer than this: four passages of a switch, 250 ns or more each, and more cable."""
_CLEAR: Final = 5.0
"""The gap is so many times as wide as the middle half of the upper part: 6.7 standard deviations of a normal law."""
_APART: Final = 2.0
"""And so many times as wide as the lower part from its middle to its highest tenth."""
_MOST_NEAR: Final = 0.6
"""At most this share of the pairs shares a switch; above, the widest gap may be that of a few slow pairs."""
_LEAST_PAIRS: Final = 6
_CONTRADICTED: Final = 0.1
"""A group of which a greater share of the pairs within is far is none."""
_DENSE: Final = 0.8
"""So many of all pairs must be known for NICs to be compared by what they have in common with all others,"""
_MOST_COMPARED: Final = 128
"""at most so many NICs are,"""
_IN_COMMON: Final = 4
"""and two with so many others in common."""
_AS_WIDE: Final = 0.25
"""The gap is at least this share of the widest, which parts pods: a smaller one is of chance,"""
_MOST_MET: Final = 0.7
"""So many NICs must have plainly met one of their group: of NICs that differ, chance makes a few pairs nearer."""
_STANDS_OUT: Final = 5.0
"""Fewer have where few pairs within a leaf are probed: then the gap is so many times as wide as all others,"""
_TIERS: Final = 3
"""those between so many tiers aside."""
_PLAINLY: Final = 1.0
"""A gap of the floors themselves is so many times as wide as what is below it."""
_SAME: Final = 2.0
"""and so many times as wide as the widest of the differences that stay."""


def leaf_groups(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> Int64s:
    """Group of each NIC: the smallest number among the NICs that share its switch; −1: not known.

    Parameters
    ----------
    nics : int
    a, b : (pairs,) int64
        Numbers of the two NICs of each pair.
    floor_ns : (pairs,) float64
        Least round trip, ns.

    Notes
    -----
    A NIC of which no neighbour was probed is alone in its group. Cost: O(pairs log pairs), some 20 times, and
    O(nics³) once for at most 128 NICs of which most pairs are known.

    Examples
    --------
    >>> a, b = np.triu_indices(6, 1)
    >>> leaf_groups(6, a, b, np.where(a // 2 == b // 2, 15e3, 19e3) + 10.0 * a)
    array([0, 0, 2, 2, 4, 4])
    """
    return with_whole_leaves(_by_floors(nics, a, b, floor_ns), a, b)


def _by_floors(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> Int64s:
    """Groups by what the pairs show that are probed."""
    if a.size < _LEAST_PAIRS:
        return np.full(nics, -1, np.int64)
    plain, of_few = _plain(nics, a, b, floor_ns)
    if plain is not None and of_few:
        return plain
    if plain is None:
        plain = closed_groups(nics, a, b, floor_ns)
    compared = _compared(nics, a, b, floor_ns)
    label, refuted = (None, None) if compared is None else _labelled(nics, *compared)
    if compared is None or label is None or refuted is None or refuted.any():  # some pair lacks what tells it apart
        return _by_gap(nics, a, b, floor_ns) if plain is None else plain
    by_others = np.where(_met(nics, *compared[:2]), label, -1)
    if plain is not None:
        return _with_what_is_alone(plain, by_others, a, b)
    by_gap = _by_gap(nics, a, b, floor_ns)
    return by_others if by_gap.max() < 0 else _common((by_gap, a, b), (by_others, *compared[:2]))


def _plain(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> tuple[Int64s | None, bool]:
    """Groups by the floors as they are; None where these do not fall clearly apart into two groups or more. And whether
    they do so clearly that NICs' shares cannot differ, though most NICs are probed with none at their switch.
    """
    ordered = np.sort(floor_ns)
    gap = np.diff(ordered)
    clear = (gap >= np.maximum(_LEAST_GAP_NS, _PLAINLY * (ordered[:-1] - ordered[0]))) & (gap >= _AS_WIDE * gap.max())
    clear[int(_MOST_NEAR * ordered.size) :] = False
    met = _met(nics, a, b)
    for at in np.flatnonzero(clear).tolist():  # further ones part pods
        near = floor_ns <= ordered[at]
        label = components(nics, a[near], b[near])
        several = np.bincount(label, minlength=nics)[label] > 1
        if (label[a] == label[b])[~near].any() or np.unique(label[several]).size < 2:
            continue
        if several.sum() >= _MOST_MET * met.sum():
            return np.where(met, label, -1), False
        if int((gap >= gap[at] / _STANDS_OUT).sum()) < _TIERS and _refute_shares(label, near, a, b):
            return np.where(met, label, -1), True
    return None, False


def _refute_shares(label: Int64s, near: Bools, a: Int64s, b: Int64s) -> bool:
    """Whether of every group a near pair is probed crosswise with one of another, so that shares alone, by which all
    four pairs would add up alike, cannot make both near and the others far.
    """
    one, two = a[near], b[near]
    if one.size > _MOST_COMPARED:
        return False
    nics = np.unique(np.concatenate([one, two]))
    probed = np.zeros((label.size, label.size), np.bool_)
    probed[a, b] = probed[b, a] = True
    straight = probed[np.ix_(one, one)] & probed[np.ix_(two, two)]
    crossed = probed[np.ix_(one, two)] & probed[np.ix_(two, one)]
    apart = label[one][:, np.newaxis] != label[one]
    refuted = ((straight | crossed) & apart).any(axis=1)
    return bool(np.isin(label[nics], label[one[refuted]]).all())


def _with_what_is_alone(plain: Int64s, by_others: Int64s, a: Int64s, b: Int64s) -> Int64s:
    """`plain` groups joined by others' word where one of two NICs is alone in its own, or nobody probes between them.

    Where that would join what is plainly apart, the group is as it plainly is.
    """
    met = np.flatnonzero(plain >= 0)
    size = np.bincount(plain[met], minlength=plain.size)
    at = np.full(plain.size, -1, np.int64)
    at[met] = np.arange(met.size)
    probed = np.zeros((met.size, met.size), np.bool_)
    probed[at[a], at[b]] = probed[at[b], at[a]] = True
    several = size[plain[met]] > 1
    silent = ~probed | ~several | ~several[:, np.newaxis]
    mine, others = plain[met], by_others[met]
    same = mine[:, np.newaxis] == mine
    joined = components(met.size, *np.nonzero(same | (silent & (others >= 0) & (others[:, np.newaxis] == others))))
    disputed = np.unique(joined[np.nonzero(~silent & ~same & (joined[:, np.newaxis] == joined))[0]])
    result = plain.copy()
    result[met] = np.where(np.isin(joined, disputed), mine, met[joined])
    return result


def _common(one: tuple[Int64s, Int64s, Int64s], other: tuple[Int64s, Int64s, Int64s]) -> Int64s:
    """Groups on which both views agree, each a label of every NIC and the pairs that it has looked at: either may take
    NICs of several switches for one group, for reasons of its own.

    Of a pair that one has not looked at the other alone speaks; but where that would join what was looked at and is
    apart, the group is what both say. A NIC without a label was looked at, and nothing came of it.
    """
    known = np.flatnonzero((one[0] >= 0) | (other[0] >= 0))
    at = np.full(one[0].size, -1, np.int64)
    at[known] = np.arange(known.size)
    same, looked = [], []
    for label, a, b in (one, other):
        mine = label[known]
        same.append(mine[:, np.newaxis] == mine)
        seen = np.zeros((known.size, known.size), np.bool_)
        seen[at[a], at[b]] = seen[at[b], at[a]] = True
        looked.append(seen | (mine < 0) | (mine < 0)[:, np.newaxis])
    both = same[0] & same[1]
    alone = (same[0] & ~looked[1]) | (same[1] & ~looked[0])
    strict, loose = (components(known.size, *np.nonzero(pairs)) for pairs in (both, both | alone))
    apart = (looked[0] & ~same[0]) | (looked[1] & ~same[1])
    disputed = np.unique(loose[np.nonzero(apart & (loose[:, np.newaxis] == loose))[0]])
    result = np.full(at.size, -1, np.int64)
    result[known] = known[np.where(np.isin(loose, disputed), strict, loose)]
    return result


def _by_gap(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> Int64s:
    """Groups by the gap between what lies between near and far NICs; −1: not known."""
    between = _between(nics, a, b, floor_ns)
    limit = _split(np.sort(between))
    if limit is None:
        between = _between_as_if_near(nics, a, b, floor_ns, between)
        limit = _split(np.sort(between))
    if limit is None:
        return np.full(nics, -1, np.int64)
    label, refuted = _labelled(nics, a, b, between < limit)
    result: Int64s = np.where(_met(nics, a, b) & ~refuted[label], label, -1)
    return result


def _met(nics: int, a: Int64s, b: Int64s) -> Bools:
    """Which NICs are in any pair."""
    met = np.zeros(nics, np.bool_)
    met[a], met[b] = True, True
    return met


def _labelled(nics: int, a: Int64s, b: Int64s, near: Bools) -> tuple[Int64s, Bools]:
    """Group of each NIC by the pairs that are near, and which groups their own pairs contradict."""
    label = components(nics, a[near], b[near])
    same = label[a] == label[b]
    inside = np.bincount(label[a[same]], minlength=nics)
    against = np.bincount(label[a[same & ~near]], minlength=nics)
    return label, against > _CONTRADICTED * inside


def least_by_pair(a: Int64s, b: Int64s, value: Float64s) -> tuple[Int64s, Int64s, Float64s]:
    """Each pair of different numbers once, the smaller first, with its least value.

    Parameters
    ----------
    a, b : (n,) int64
        Numbers of NICs, below 2**31 and not negative.
    value : (n,) float64

    Examples
    --------
    >>> least_by_pair(np.array([2, 1, 3]), np.array([1, 2, 3]), np.array([7.0, 5.0, 1.0]))
    (array([1]), array([2]), array([5.]))
    """
    apart = a != b
    low, high, value = np.minimum(a, b)[apart], np.maximum(a, b)[apart], value[apart]
    pairs = group((low << 31) | high)
    if not pairs.key.size:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    return pairs.key >> 31, pairs.key & ((1 << 31) - 1), np.minimum.reduceat(value[pairs.order], pairs.start)


def _between(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> Float64s:
    """(pairs,) what is left of each floor beside its two NICs' shares."""
    share = np.full(nics, float(np.median(floor_ns)) / 2)
    nic, other, both = np.concatenate([a, b]), np.concatenate([b, a]), np.concatenate([floor_ns, floor_ns])
    pairs = np.bincount(nic, minlength=nics)
    for _ in range(_ROUNDS):  # by means, which come near it fast
        mean = np.bincount(nic, both - share[other], nics) / np.maximum(pairs, 1)
        share = (share + mean) / 2
    for _ in range(_ROUNDS):
        by_nic, ordered = group_values(nic, both - share[other])
        share[by_nic.key] = (share[by_nic.key] + quantile(by_nic, ordered, 0.5)) / 2
    result: Float64s = floor_ns - share[a] - share[b]
    return result


def _between_as_if_near(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s, between: Float64s) -> Float64s:
    """`_between` once more, with shares for which the pairs below the widest gap are near."""
    ordered = np.sort(between)
    near = between <= ordered[_widest(ordered)]
    nearer_ns = np.where(near, np.median(between[near]) - np.median(between[~near]), 0.0)
    return _between(nics, a, b, floor_ns - nearer_ns) + nearer_ns


def _compared(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> tuple[Int64s, Int64s, Bools] | None:
    """Pairs with enough in common, and which of them share a switch, by how much their differences to others vary;
    None where that is not clear.
    """
    met = np.unique(np.concatenate([a, b]))
    if met.size > _MOST_COMPARED or a.size < _DENSE * met.size * (met.size - 1) / 2:
        return None
    known = np.full((nics, nics), np.nan)
    known[a, b] = known[b, a] = floor_ns
    first, second = (met[i] for i in np.triu_indices(met.size, 1))
    apart = known[first] - known[second]  # the pair itself has no floor to itself, so it is left out
    enough = np.isfinite(apart).sum(axis=1) >= _IN_COMMON
    first, second, apart = first[enough], second[enough], apart[enough]
    if first.size < _LEAST_PAIRS:
        return None
    varies = np.nanmax(apart, axis=1) - np.nanmin(apart, axis=1)
    ordered = np.sort(varies)
    gap = np.diff(ordered)
    clear = (gap >= np.maximum(_LEAST_GAP_NS, _SAME * ordered[:-1])) & (gap >= _AS_WIDE * gap.max())
    at = int(np.argmax(clear))  # the first: further ones part pods
    if not clear[at] or at + 1 > _MOST_NEAR * ordered.size:
        return None
    return first, second, varies <= ordered[at]


def _widest(ordered: Float64s) -> int:
    """Number of the value before the widest gap, of those that may be the lower part."""
    return int(np.argmax(np.diff(ordered)[: max(1, int(_MOST_NEAR * ordered.size))]))


def _split(ordered: Float64s) -> float | None:
    """The value that parts the lowest of the ascending `ordered` values from others; None where nothing does clearly.

    Of three distances the two lower are about as clearly apart as both are from the third.
    """
    limit, gap = _split_once(ordered)
    while limit is not None:
        lower = ordered[ordered < limit]
        further, narrower = _split_once(lower) if lower.size >= _LEAST_PAIRS else (None, 0.0)
        if further is None or narrower < _AS_WIDE * gap:
            break
        limit, gap = further, narrower
    return limit


def _split_once(ordered: Float64s) -> tuple[float | None, float]:
    """The value that parts ascending `ordered` values in two, None where nothing does clearly; and the gap there."""
    at = _widest(ordered)
    lower, upper, gap = ordered[: at + 1], ordered[at + 1 :], float(ordered[at + 1] - ordered[at])
    (quarter, middle), tenth = np.quantile(upper, (0.25, 0.5)), np.quantile(lower, 0.9)
    least = max(_LEAST_GAP_NS, _CLEAR * 2 * float(middle - quarter), _APART * float(tenth - np.median(lower)))
    return (float(lower[-1] + upper[0]) / 2 if gap >= least else None), gap
