"""Groups of NICs whose pairs are all nearer than every other pair, where the gap alone would not say so.

Where stamps jitter by several µs, least round trips of pairs on one switch spread over more than two switches take, and
no gap stands out. But ordered by them the pairs build their groups one after the other, and at one place all that were
probed inside the groups are near and none between them is. Hosts that are fast or slow never look so: with a and b
near, and c and d, one of a and b is near one of c and d as well (a threshold graph has one component with edges), and
chance closes two groups only where each has hardly more pairs than it takes to join them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.graph import components

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

_LEAST_GAP_NS: Final = 500.0
_SHARE: Final = 0.3
"""The gap is at least this share of what the values below it differ by,"""
_AS_WIDE: Final = 0.5
"""and of the widest gap that closes groups; further ones part pods."""
_MOST_NEAR: Final = 0.6
"""At most this share of the pairs shares a switch."""
_MOST_MET: Final = 0.7
"""So many NICs must be in groups of several."""
_MORE: Final = 4
"""Pairs inside groups beyond those that it takes to join them."""


def closed_groups(nics: int, a: Int64s, b: Int64s, floor_ns: Float64s) -> Int64s | None:
    """Group of each NIC, the smallest number in it, −1 where nobody probed it; None where no groups are closed.

    Parameters
    ----------
    nics : int
    a, b : (pairs,) int64
        Numbers of the two NICs of each pair.
    floor_ns : (pairs,) float64
        Least round trip, ns.
    """
    ordered = np.sort(floor_ns)
    gap = np.diff(ordered)
    wide = gap >= np.maximum(_LEAST_GAP_NS, _SHARE * (ordered[:-1] - ordered[0]))
    wide[int(_MOST_NEAR * ordered.size) :] = False
    found = [
        (gap[at], label)
        for at in np.flatnonzero(wide).tolist()
        if (label := _closed(nics, a, b, floor_ns <= ordered[at])) is not None
    ]
    if not found:
        return None
    widest = max(wide for wide, _ in found)
    label = next(label for wide, label in found if wide >= _AS_WIDE * widest)
    met = np.zeros(nics, np.bool_)
    met[a], met[b] = True, True
    return np.where(met, label, -1)


def _closed(nics: int, a: Int64s, b: Int64s, near: npt.NDArray[np.bool_]) -> Int64s | None:
    """Groups by the pairs that are `near`, where several are closed and have pairs enough."""
    label = components(nics, a[near], b[near])
    if (label[a] == label[b])[~near].any():
        return None
    size = np.bincount(label, minlength=nics)
    several = size > 1
    met = np.unique(np.concatenate([a, b])).size
    joining = int((size[several] - 1).sum())
    enough = int(near.sum()) - joining >= _MORE and int(size[several].sum()) >= _MOST_MET * met
    return label if several.sum() > 1 and enough else None
