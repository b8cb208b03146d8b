"""Group-by on sorted keys: sums, minima and quantiles per group without a Python loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]


class Groups(NamedTuple):
    """Rows put in order of their group: `order` sorts them, group g is ``order[start[g] : start[g] + size[g]]``."""

    order: Int64s
    start: Int64s
    size: Int64s
    key: npt.NDArray[Any]
    """(groups,) the key of each group, ascending."""


def group(keys: Int64s) -> Groups:
    """Group equal `keys` >= 0; rows of one group keep their order (so that sums do not depend on how a batch was cut).

    Cost: a radix sort while keys stay below 65 536, else a merge sort.
    """
    order = _stable_order(keys)
    return Groups(order, *_runs(keys[order]))


def _stable_order(keys: Int64s) -> Int64s:
    small = keys.size > 0 and int(keys.max()) < 1 << 16
    result: Int64s = np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")
    return result


def _runs(ordered: npt.NDArray[Any]) -> tuple[Int64s, Int64s, npt.NDArray[Any]]:
    if ordered.size == 0:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, ordered
    new = np.empty(ordered.size, dtype=np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    start = np.flatnonzero(new)
    count = np.diff(start, append=ordered.size)
    return start, count, ordered[start]


def group_values(keys: Int64s, values: Float64s) -> tuple[Groups, Float64s]:
    """Group by key with each group's values ascending: the groups, and the values in that order."""
    rising = np.argsort(values)
    order = rising[_stable_order(keys[rising])]
    return Groups(order, *_runs(keys[order])), values[order]


def quantile(groups: Groups, ordered: Float64s, q: float) -> Float64s:
    """The `q` quantile of each group of ascending `ordered` values, by linear interpolation (numpy's default).

    Examples
    --------
    >>> g, v = group_values(np.array([1, 0, 1, 1]), np.array([3.0, 9.0, 1.0, 2.0]))
    >>> quantile(g, v, 0.5)
    array([9., 2.])
    """
    position = (groups.size - 1) * q
    low = position.astype(np.int64)
    high = np.minimum(low + 1, groups.size - 1)
    below = ordered[groups.start + low]
    result: Float64s = below + (ordered[groups.start + high] - below) * (position - low)
    return result


def sums(index: Int64s, weight: npt.NDArray[Any], size: int) -> Float64s:
    """Sum of `weight` over each index 0..size−1, in order of the rows."""
    result: Float64s = np.bincount(index, weight, size).astype(np.float64, copy=False)
    return result
