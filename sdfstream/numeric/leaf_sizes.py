"""Groups of NICs that nobody probes between and that together are as many as most leaves have: they are one leaf.

Where few pairs are probed a leaf falls apart: nobody happened to probe between some of its NICs. That nobody did is as
likely whether they share a switch or not, so that it says nothing; what leaves usually look like does. Leaves have as
many NICs as others, and fragments that nobody probes between and that fill exactly one such leaf are likelier one than
leaves of uncommon sizes.

The usual size is that of two groups or more from which everybody else is known to be apart, if no group is larger and
groups of that size hold at least half of all NICs; else the only one of which all leaves may be. Fragments are smaller
groups; they are joined where they can be put together in just one way, each leaf full and nobody probing between its
fragments. Where some cannot be put together at all, leaves differ, and nothing is joined.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, islice
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.graph import components

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_LEAST_WHOLE: Final = 2
_MOST_WHOLE: Final = 0.5
"""Least share of the NICs that are in groups of the usual size."""
_LEAST_LEAVES: Final = 3
_FRAGMENTS_A_LEAF: Final = 2
"""Where no leaf is known to be whole: of more some pair may have been taken for far by mistake."""
_MOST_GROUPS: Final = 512
_MOST_FRAGMENTS: Final = 10
"""Of more, any of which may share a leaf, there are many ways to put them together."""


def with_whole_leaves(label: Int64s, a: Int64s, b: Int64s) -> Int64s:
    """Groups as `proximity.leaf_groups` gives them, with the fragments of leaves joined.

    Parameters
    ----------
    label : (nics,) int64
        The smallest number among the NICs that share its switch; −1: not known.
    a, b : (pairs,) int64
        NICs that are probed.

    Notes
    -----
    Cost: O(groups² + pairs), of at most 512 groups.

    Examples
    --------
    Of four leaves of two, nobody probes between NICs 6 and 7:

    >>> a, b = np.triu_indices(8, 1)
    >>> label = np.array([0, 0, 2, 2, 4, 4, 6, 7])
    >>> with_whole_leaves(label, a[:-1], b[:-1])
    array([0, 0, 2, 2, 4, 4, 6, 6])
    """
    groups, size = np.unique(label[label >= 0], return_counts=True)
    if groups.size > _MOST_GROUPS or size.size == np.count_nonzero(size == size.max(initial=0)):
        return label
    silent = _silent(label, groups, a, b)
    usual = _usual_size(size, silent.sum(axis=1) == 0) or _only_size(size, silent)
    smaller = size < usual
    if not smaller.any():
        return label
    fragments, sizes, silent = groups[smaller], size[smaller], silent[np.ix_(smaller, smaller)]
    result, component = label.copy(), components(fragments.size, *np.nonzero(silent))
    for one in np.unique(component).tolist():
        mine = np.flatnonzero(component == one).tolist()
        if len(mine) > _MOST_FRAGMENTS:
            continue
        covers = list(islice(_covers(mine, sizes, silent, usual), 2))
        if not covers:  # some leaf is of another size
            return label
        for leaf in covers[0] if len(covers) == 1 else ():
            result[np.isin(label, fragments[list(leaf)])] = fragments[leaf[0]]
    return result


def _usual_size(size: Int64s, whole: Bools) -> int:
    """How many NICs leaves have, of the sizes of all groups and which of them are surely whole leaves; 0: not known.

    >>> size = np.array([4, 2, 4, 1, 4, 1])
    >>> _usual_size(size, size == 4), _usual_size(size, size == 2)
    (4, 0)
    """
    sizes, times = np.unique(size[whole], return_counts=True)
    most = int(size.max(initial=0))
    usual = (sizes == most) & (times >= _LEAST_WHOLE) & (size[size == most].sum() >= _MOST_WHOLE * size.sum())
    return most if usual.any() and most > 1 else 0


def _only_size(size: Int64s, silent: Bools) -> int:
    """The one size of which all leaves may be, three or more of few fragments; 0: there is none, or not only one."""
    most, total = int(size.max(initial=0)), int(size.sum())
    found = []
    for usual in (one for one in range(max(2, most), total // _LEAST_LEAVES + 1) if total % one == 0):
        smaller = np.flatnonzero(size < usual).tolist()
        if len(smaller) > _MOST_FRAGMENTS or next(_covers(smaller, size, silent, usual), None) is not None:
            found.append(usual)
    few = len(found) == 1 and size.size <= _FRAGMENTS_A_LEAF * (total // found[0])
    return found[0] if few else 0


def _silent(label: Int64s, groups: Int64s, a: Int64s, b: Int64s) -> Bools:
    """(groups, groups) between which nobody probes."""
    number = np.where(label >= 0, np.searchsorted(groups, label), -1)
    first, second = number[a], number[b]
    known = (first >= 0) & (second >= 0)
    silent = ~np.eye(groups.size, dtype=np.bool_)
    silent[first[known], second[known]] = silent[second[known], first[known]] = False
    return silent


def _covers(fragments: list[int], sizes: Int64s, silent: Bools, usual: int) -> Iterator[list[tuple[int, ...]]]:
    """All ways to put all these fragments together to leaves of the usual size (exact covers)."""
    if not fragments:
        yield []
        return
    first, rest = fragments[0], fragments[1:]
    for count in range(1, len(rest) + 1):
        for others in combinations(rest, count):
            leaf = (first, *others)
            if sizes[list(leaf)].sum() == usual and all(silent[i, j] for i, j in combinations(leaf, 2)):
                left = [one for one in rest if one not in others]
                yield from ([leaf, *more] for more in _covers(left, sizes, silent, usual))
