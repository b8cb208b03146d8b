"""Group-by on sorted keys: sums, minima and quantiles per group without a Python loop."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Float64s = npt.NDArray[np.float64]
Int64s = npt.NDArray[np.int64]


_MOST_PADDING: Final = 3
"""Groups are sorted as rows of a matrix that is at most so many times as large as the values."""


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
    order = stable_order(keys)
    return Groups(order, *runs(keys[order]))


def stable_order(keys: Int64s) -> Int64s:
    """Order that sorts `keys` >= 0; equal ones stay in order."""
    small = keys.size > 0 and int(keys.max()) < 1 << 16
    result: Int64s = np.argsort(keys.astype(np.uint16) if small else keys, kind="stable")
    return result


def runs(ordered: npt.NDArray[Any]) -> tuple[Int64s, Int64s, npt.NDArray[Any]]:
    """Start, size and key of each run of equal keys."""
    if ordered.size == 0:
        nothing = np.empty(0, dtype=np.int64)
        return nothing, nothing, ordered
    new = np.empty(ordered.size, dtype=np.bool_)
    new[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    (start,) = new.nonzero()
    count = np.empty_like(start)
    np.subtract(start[1:], start[:-1], out=count[:-1])
    count[-1] = ordered.size - start[-1]
    return start, count, ordered[start]


def group_values(keys: Int64s, values: Float64s) -> tuple[Groups, Float64s]:
    """Group by key with each group's values ascending: the groups, and the values in that order."""
    rising = np.argsort(values)
    order = rising[stable_order(keys[rising])]
    return Groups(order, *runs(keys[order])), values[order]


def ranked(groups: Groups, columns: list[Float64s]) -> tuple[list[Float64s], Int64s]:
    """Values in ascending order inside each group, NaN last: for each of `columns`, and where the groups start there.

    A column's values are in order of the rows that were grouped. Between two groups there may be NaN as padding.
    """
    widest = int(groups.size.max(initial=0))
    if widest * groups.size.size > _MOST_PADDING * groups.order.size:
        keys = np.empty(groups.order.size, dtype=np.int64)
        keys[groups.order] = np.arange(groups.size.size).repeat(groups.size)
        return [group_values(keys, values)[1] for values in columns], groups.start
    # groups of about one size are the rows of a matrix: sorting short rows is many times cheaper than one long sort
    start = np.arange(groups.size.size) * widest
    slot = np.arange(groups.order.size) + (start - groups.start).repeat(groups.size)
    result = []
    for values in columns:
        table = np.full(groups.size.size * widest, np.nan)
        table[slot] = values[groups.order]
        _sort_rows(table.reshape(-1, max(widest, 1)))
        result.append(table)
    return result, start


_EXCHANGES: Final = {1: (), 2: ((0, 1),), 3: ((0, 1), (1, 2), (0, 1)), 4: ((0, 1), (2, 3), (0, 2), (1, 3), (1, 2))}
"""By width of a row: which places are compared, one after the other, until the row is in order (Knuth, 5.3.4)."""


def _sort_rows(table: Float64s) -> None:
    """Sort each row in place, NaN last; narrow rows place by place over all rows, in a fifth of the time."""
    exchanges = _EXCHANGES.get(table.shape[1])
    if exchanges is None:
        table.sort(axis=1)
        return
    slots = list(table.T.copy())
    for low, high in exchanges:  # `fmin` is NaN where both are, `maximum` where one is
        slots[low], slots[high] = np.fmin(slots[low], slots[high]), np.maximum(slots[low], slots[high])
    for at, column in enumerate(slots):
        table[:, at] = column


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
    return cast("Float64s", np.bincount(index, weight, size))  # of floats, since there are weights


def median(values: Float64s) -> float:
    """Median of some values, as numpy's own says it at five times the cost; NaN where one of them is."""
    ordered = np.sort(values)
    half = ordered.size // 2
    if np.isnan(ordered[-1]):
        return float("nan")
    return float(ordered[half] if ordered.size % 2 else 0.5 * (ordered[half - 1] + ordered[half]))


class Distinct:
    """``np.unique`` with the inverse, for keys that as a rule are those of the last call: these are not sorted again.

    Examples
    --------
    >>> distinct = Distinct()
    >>> distinct.of(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0, 1]))
    """

    def __init__(self) -> None:
        self._keys: Int64s | None = None
        self._found: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def of(self, keys: Int64s) -> tuple[Int64s, Int64s]:
        """The distinct `keys`, ascending, and the place of each key among them; neither is to be written to."""
        if self._keys is None or not np.array_equal(self._keys, keys):
            self._keys, self._found = keys.copy(), np.unique(keys, return_inverse=True)
        return self._found


class Firsts:
    """``np.unique`` with the index of each key's first appearance, for keys that as a rule are those of the last call.

    Examples
    --------
    >>> firsts = Firsts()
    >>> firsts.of(np.array([7, 3, 7]))
    (array([3, 7]), array([1, 0]))
    """

    def __init__(self) -> None:
        self._keys: Int64s | None = None
        self._found: tuple[Int64s, Int64s] = (np.empty(0, np.int64), np.empty(0, np.int64))

    def of(self, keys: Int64s) -> tuple[Int64s, Int64s]:
        """The distinct `keys`, ascending, and where each appears first; neither is to be written to."""
        if self._keys is None or not np.array_equal(self._keys, keys):
            self._keys, self._found = keys.copy(), np.unique(keys, return_index=True)
        return self._found
