"""Sparse integer keys to dense slots, whole arrays at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
_SPARE_BITS: Final = 3
"""The table of guesses has 8 to 16 buckets for each key: about one key in twenty has to be searched for."""


class KeyIndex:
    """Gives every int64 key a slot 0, 1, 2, … in order of first sight; freed slots are used again.

    State of a million keys then lives in plain arrays indexed by slot. Look-up is one guess from a hash table, which
    says what slot a key has if it is known; only of keys that share a bucket the older ones, and unknown keys,
    are searched for among the sorted ones.

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

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._keys: Ints = np.empty(0, np.int64)
        self._slots: Ints = np.empty(0, np.int64)
        self._free: list[int] = []
        self.slots = 0
        """Slots ever given out: arrays indexed by slot need this length."""
        self._learn()

    def __len__(self) -> int:
        return self._keys.size

    def find(self, keys: Ints) -> Ints:
        """Slot of every key, −1 where it is not known."""
        slot = self._guess[self._bucket(keys)].astype(np.int64)
        miss = np.flatnonzero((self._key[slot] != keys) | (slot < 0))
        if miss.size:
            slot[miss] = self._search(keys[miss])
        return slot

    def _search(self, keys: Ints) -> Ints:
        if self._keys.size == 0:
            return np.full(keys.shape, -1, np.int64)
        at = np.minimum(np.searchsorted(self._keys, keys), self._keys.size - 1)
        return np.where(self._keys[at] == keys, self._slots[at], -1)

    def _bucket(self, keys: Ints) -> npt.NDArray[np.uint64]:
        mixed: npt.NDArray[np.uint64] = np.ascontiguousarray(keys).view(np.uint64) * _MIX
        mixed >>= self._shift
        return mixed

    def _learn(self) -> None:
        """Make the table of guesses anew."""
        self._key = np.zeros(max(1, self.slots), np.int64)
        """(slots,) key of each slot in use."""
        self._key[self._slots] = self._keys
        bits = self._keys.size.bit_length() + _SPARE_BITS
        self._shift = np.uint64(64 - bits)
        self._guess = np.full(1 << bits, -1, np.int32)
        self._guess[self._bucket(self._keys)] = self._slots

    def add(self, keys: Ints) -> Ints:
        """Slot of every key; unknown ones are taken in, in order of appearance, while there is room."""
        found = self.find(keys)
        if (found >= 0).all():
            return found
        new = list(dict.fromkeys(keys[found < 0].tolist()))[: self.capacity - self._keys.size]
        if not new:
            return found
        given = [self._free.pop() if self._free else self._next() for _ in new]
        merged = np.concatenate([self._keys, np.array(new, np.int64)])
        order = np.argsort(merged, kind="stable")
        self._keys = merged[order]
        self._slots = np.concatenate([self._slots, np.array(given, np.int64)])[order]
        self._learn()
        return self.find(keys)

    def slots_where(self, wanted: Callable[[Ints], npt.NDArray[np.bool_]]) -> Ints:
        """Slots of the keys for which `wanted` is True."""
        return self._slots[wanted(self._keys)]

    def remove(self, slots: Ints) -> None:
        """Forget the keys of these slots; the slots are handed out again later."""
        gone = np.isin(self._slots, slots)
        self._free.extend(sorted(self._slots[gone].tolist(), reverse=True))
        self._keys, self._slots = self._keys[~gone], self._slots[~gone]
        self._learn()

    def _next(self) -> int:
        self.slots += 1
        return self.slots - 1

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
