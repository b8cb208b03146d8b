"""The state of many small things of one kind in plain arrays: which slot a key has, and a column for each field.

`KeyIndex` gives sparse integer keys dense slots; a `Table` has the columns that are indexed by slot.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_LEAST_ROWS: Final = 16
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SPARE_BITS: Final = 3
"""The table of guesses has 8 to 16 buckets for each key: about one key in twenty has to be searched for."""


class KeyIndex:
    """Gives every int64 key a slot 0, 1, 2, … in order of first sight; freed slots are used again.

    State of a million keys then lives in plain arrays indexed by slot. Look-up is one guess from a hash table, which
    says what slot a key has if it is known; only keys that share a bucket with another, and unknown keys, are searched
    for among the sorted ones.

    Parameters
    ----------
    capacity : int
        At most this many keys are held; further new ones get slot −1 (the caller counts them).

    Examples
    --------
    >>> index = KeyIndex(capacity=2)
    >>> index.add(np.array([70, 30, 70, 50]))
    array([ 0,  1,  0, -1])
    >>> index.find(np.array([30, 99]))
    array([ 1, -1])
    """

    def __init__(self, capacity: int = sys.maxsize) -> None:
        self.capacity = capacity
        self.fill(np.empty(0, np.int64))

    def fill(self, keys: Ints) -> None:
        """Hold exactly these keys, slot by slot."""
        self._slots: Ints = np.argsort(keys, kind="stable")
        self._keys: Ints = keys[self._slots]
        self._free: list[int] = []
        self.slots = keys.size
        """Slots ever given out: arrays indexed by slot need this length."""
        self._learn()

    def __len__(self) -> int:
        return self._keys.size

    def find(self, keys: Ints) -> Ints:
        """Slot of every key, −1 where it is not known."""
        return self._look_up(keys)[0]

    def add(self, keys: Ints) -> Ints:
        """Slot of every key; unknown ones are taken in, in order of appearance, while there is room."""
        return self.add_new(keys)[0]

    def add_new(self, keys: Ints) -> tuple[Ints, Ints]:
        """As `add`; and the position of each key that was taken in, at its first appearance."""
        slot, unknown = self._look_up(keys)
        if not unknown.size:
            return slot, unknown
        _, first = np.unique(keys[unknown], return_index=True)
        fresh = unknown[np.sort(first)][: self.capacity - self._keys.size]
        if fresh.size:
            self._take_in(keys[fresh])
            slot[unknown] = self.find(keys[unknown])
        return slot, fresh

    def _look_up(self, keys: Ints) -> tuple[Ints, Ints]:
        """Slot of every key, −1 where it is not known; and the positions of those."""
        if not self._keys.size:
            return np.full(keys.shape, -1, np.int64), np.arange(keys.size)
        slot = self._guess[self._bucket(keys)].astype(np.int64)
        miss = np.flatnonzero(self._key[slot] != keys)
        if not miss.size:
            return slot, miss
        at = np.minimum(np.searchsorted(self._keys, keys[miss]), self._keys.size - 1)
        known = self._keys[at] == keys[miss]
        slot[miss] = np.where(known, self._slots[at], -1)
        return slot, miss[~known]

    def _take_in(self, keys: Ints) -> None:
        """Give a slot to each of these keys, which are new."""
        used_again = [self._free.pop() for _ in range(min(len(self._free), keys.size))]
        more = keys.size - len(used_again)
        given = np.array([*used_again, *range(self.slots, self.slots + more)], np.int64)
        self.slots += more
        merged = np.concatenate([self._keys, keys])
        order = np.argsort(merged, kind="stable")
        self._keys = merged[order]
        self._slots = np.concatenate([self._slots, given])[order]
        self._learn()

    def _bucket(self, keys: Ints) -> npt.NDArray[np.uint64]:
        mixed: npt.NDArray[np.uint64] = np.ascontiguousarray(keys).view(np.uint64) * _MIX
        mixed >>= self._shift
        return mixed

    def _learn(self) -> None:
        """Make the table of guesses anew. An empty bucket guesses a slot in use: its key is compared anyway."""
        self._key = np.zeros(max(1, self.slots), np.int64)
        self._key[self._slots] = self._keys
        self.keys: Ints = self._key[: self.slots]
        """(slots,) key of each slot; of a free one it means nothing. The same array until keys come or go."""
        bits = self._keys.size.bit_length() + _SPARE_BITS
        self._shift = np.uint64(64 - bits)
        self._guess = np.full(1 << bits, self._slots[0] if self._slots.size else 0, np.int32)
        self._guess[self._bucket(self._keys)] = self._slots

    def slots_where(self, wanted: Callable[[Ints], npt.NDArray[np.bool_]]) -> Ints:
        """Slots of the keys for which `wanted` is True."""
        return self._slots[wanted(self._keys)]

    def remove(self, slots: Ints) -> None:
        """Forget the keys of these slots; the slots are handed out again later."""
        gone = np.isin(self._slots, slots)
        self._free.extend(sorted(self._slots[gone].tolist(), reverse=True))
        self._keys, self._slots = self._keys[~gone], self._slots[~gone]
        self._learn()

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain values and arrays."""
        return {"keys": self._keys, "at": self._slots, "free": list(self._free), "slots": self.slots}

    def restore(self, state: dict[str, object]) -> None:
        """Take up a state made by `snapshot`."""
        self._keys = np.asarray(state["keys"], np.int64)
        self._slots = np.asarray(state["at"], np.int64)
        self._free = [int(x) for x in state["free"]]  # type: ignore[attr-defined]
        self.slots = int(state["slots"])  # type: ignore[call-overload]
        self._learn()


class Table:
    """Named columns of equal length that grow on demand; a fresh row holds each column's default.

    Columns grow by doubling. Views taken before rows were added, dropped or moved are stale afterwards.

    Parameters
    ----------
    defaults : mapping of name to numpy scalar or 1-D array
        An array makes a column of shape (rows, values), one such array per row.
    wide : mapping of name to 1-D array
        Columns of shape (values, rows): the rows of one value lie side by side.

    Examples
    --------
    >>> t = Table({"seen": np.int64(-1), "bins": np.zeros(3, np.int32)}, {"floor_ns": np.zeros(2)})
    >>> t.ensure(4)
    >>> t["seen"].tolist(), t["bins"].shape, t["floor_ns"].shape
    ([-1, -1, -1, -1], (4, 3), (2, 4))
    """

    def __init__(self, defaults: Mapping[str, Any], wide: Mapping[str, Any] | None = None) -> None:
        transposed = {name: np.asarray(value)[:, None] for name, value in (wide or {}).items()}
        self._defaults = {name: np.asarray(value) for name, value in defaults.items()} | transposed
        self._wide = frozenset(transposed)
        self._columns: dict[str, Array] = {name: self._empty(name, 0) for name in self._defaults}
        self._views = dict(self._columns)
        self.rows = 0

    def __getitem__(self, name: str) -> Array:
        """The column over the rows in use; writing to it changes the table."""
        return self._views[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._views[name][...] = value

    def ensure(self, rows: int) -> None:
        """Have at least `rows` rows."""
        if rows <= self.rows:
            return
        for name, default in self._defaults.items():
            column = self._columns[name]
            size = column.shape[-1] if name in self._wide else column.shape[0]
            if rows > size:
                grown = self._empty(name, max(rows, 2 * size, _LEAST_ROWS))
                self._used(name, grown, self.rows)[...] = self._views[name]
                column = self._columns[name] = grown
            if name in self._wide:
                column[:, self.rows : rows] = default
            else:
                column[self.rows : rows] = default
            self._views[name] = self._used(name, column, rows)
        self.rows = rows

    def grow(self, rows: int) -> None:
        """Append `rows` fresh rows."""
        self.ensure(self.rows + rows)

    def reset(self, rows: npt.NDArray[np.int64]) -> None:
        """Give these rows their defaults again."""
        rows = rows[rows < self.rows]
        for name, default in self._defaults.items():
            self._columns[name][(slice(None), rows) if name in self._wide else rows] = default

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Drop the rows where `mask` is False; the others close up, in order."""
        self._replace(
            {name: view[..., mask] if name in self._wide else view[mask] for name, view in self._views.items()}
        )

    def scatter(self, at: npt.NDArray[np.int64], rows: int) -> None:
        """Have `rows` rows, of which old row j is ``at[j]``; the others are fresh."""
        old = self._views
        self._replace({name: self._empty(name, 0) for name in self._defaults})
        self.ensure(rows)
        for name, column in old.items():
            self._views[name][(slice(None), at) if name in self._wide else at] = column

    def _empty(self, name: str, rows: int) -> Array:
        default = self._defaults[name]
        shape = (default.shape[0], rows) if name in self._wide else (rows, *default.shape)
        return np.empty(shape, default.dtype)

    def _used(self, name: str, column: Array, rows: int) -> Array:
        return column[:, :rows] if name in self._wide else column[:rows]

    def _replace(self, columns: dict[str, Array]) -> None:
        self._columns, self._views = columns, dict(columns)
        name, column = next(iter(columns.items()))
        self.rows = column.shape[-1] if name in self._wide else column.shape[0]

    def snapshot(self) -> dict[str, object]:
        """The whole state as plain arrays."""
        return {name: view.copy() for name, view in self._views.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`; a column the state does not know holds its default."""
        self._replace({name: self._empty(name, 0) for name in self._defaults})
        lengths = (np.shape(value)[-1 if name in self._wide else 0] for name, value in state.items())
        self.ensure(max(lengths, default=0))
        for name, value in state.items():
            if name in self._views:
                self._views[name][...] = value
