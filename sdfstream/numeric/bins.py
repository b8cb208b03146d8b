"""Counts of the recent past, per slot and time bin: a ring of rows that is wiped as time goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]


class RingBins:
    """Sliding-window counts of many slots at once.

    Parameters
    ----------
    bins : int
        Bins in the window.
    width_ns : int
        Length of a bin; the window spans ``bins * width_ns``, the newest being the current one.
    fields : tuple of str
        What is counted; one (bins, slots) int32 array each.

    Notes
    -----
    A bin is wiped when time enters it again, so memory and cost do not depend on the length of the stream. The sum of
    the past bins moves on with them, so the sum over the window costs one addition a slot; a field
    of which nothing was counted in the window costs nothing at all.
    """

    def __init__(self, bins: int, width_ns: int, fields: tuple[str, ...]) -> None:
        self.bins, self.width_ns, self.fields = bins, width_ns, fields
        self.rows = 0
        self.now_bin = -1
        self._counts: dict[str, Int32s] = {name: np.zeros((bins, 0), np.int32) for name in fields}
        self._over: dict[str, Int32s] = {name: np.zeros(0, np.int32) for name in fields}
        """(slots,) sum over all bins but the current one."""
        self._newest: dict[str, int] = dict.fromkeys(fields, -bins)
        """Number of the newest bin that may hold a count: everything is 0 once that has left the window."""

    def ensure(self, rows: int) -> None:
        """Have at least `rows` slots."""
        if rows <= self.rows:
            return
        room = self._over[self.fields[0]].size
        if rows > room:
            room = max(rows, 2 * room, 64)
            for name in self.fields:
                self._counts[name] = _wider(self._counts[name], room, self.holds(name))
                self._over[name] = _wider(self._over[name], room, self.holds(name))
        self.rows = rows

    def reset(self, slots: Ints) -> None:
        """Count nothing for these slots so far."""
        slots = slots[slots < self.rows]
        for name in self.fields:
            if slots.size and self.holds(name):
                some = slots[self.totals(name)[slots] != 0]
                self._counts[name][:, some] = 0
                self._over[name][some] = 0

    def reset_since(self, slots: Ints, since_ns: int) -> None:
        """Count nothing for these slots in the bin that holds `since_ns`, nor later."""
        slots = slots[slots < self.rows]
        for name in self.fields:
            if slots.size and self.holds(name):
                for number in range(max(since_ns // self.width_ns, self.now_bin - self.bins + 1), self.now_bin + 1):
                    column = self._counts[name][number % self.bins]
                    if number < self.now_bin:
                        self._over[name][slots] -= column[slots]
                    column[slots] = 0

    def advance(self, now_ns: int) -> None:
        """Let the window end at `now_ns`; time never goes back."""
        new = now_ns // self.width_ns
        if self.now_bin < 0:
            self.now_bin = new
        elif new > self.now_bin:
            for name in self.fields:
                self._move(name, new)
            self.now_bin = new

    def _move(self, name: str, new: int) -> None:
        if not self.holds(name):
            return
        counts, over = self._counts[name], self._over[name]
        over += counts[self.column]
        for stale in range(self.now_bin + 1, min(new, self.now_bin + self.bins) + 1):
            over -= counts[stale % self.bins]
            counts[stale % self.bins] = 0

    @property
    def column(self) -> int:
        """Index of the current bin."""
        return self.now_bin % self.bins

    def holds(self, field: str) -> bool:
        """Whether anything at all may have been counted in the window; False: every sum is 0."""
        return self._newest[field] > self.now_bin - self.bins

    def add(self, field: str, slots: Ints, counts: npt.ArrayLike = 1) -> None:
        """Add to the current bin; a slot may occur several times."""
        if not slots.size:
            return
        each = np.asarray(counts, np.int32)  # of the row's own type: `add.at` is 30 times faster then
        np.add.at(self._counts[field][self.column], slots, each)
        self._newest[field] = self.now_bin

    def add_at(self, field: str, slots: Ints, bin_numbers: Ints) -> None:
        """Add one to the bin of that number, which may have passed; what has left the window is not counted."""
        there = (bin_numbers > self.now_bin - self.bins) & (bin_numbers <= self.now_bin)
        slots, bin_numbers = slots[there], bin_numbers[there]
        if not slots.size:
            return
        np.add.at(self._counts[field], (bin_numbers % self.bins, slots), np.int32(1))
        np.add.at(self._over[field], slots[bin_numbers < self.now_bin], np.int32(1))
        self._newest[field] = max(self._newest[field], int(bin_numbers.max()))

    def take_back(self, field: str, slots: Ints, bin_numbers: Ints) -> None:
        """Take one off the bin of that number where it is still in the window (and above zero)."""
        there = (bin_numbers > self.now_bin - self.bins) & (bin_numbers <= self.now_bin)
        if not there.any():
            return
        slots, column, counts = slots[there], bin_numbers[there] % self.bins, self._counts[field]
        np.add.at(counts, (column, slots), np.int32(-1))
        counts[column, slots] = np.maximum(counts[column, slots], 0)
        self._over[field][slots] = counts[:, slots].sum(axis=0, dtype=np.int32) - counts[self.column, slots]

    def totals(self, field: str) -> Ints:
        """(slots,) sum over the window."""
        result: Ints = np.add(self._over[field][: self.rows], self._row(field, self.column), dtype=np.int64)
        return result

    def recent(self, field: str, bins: int) -> Ints:
        """(slots,) sum over the newest `bins` bins, the current one included."""
        if bins >= self.bins:
            return self.totals(field)
        result = np.zeros(self.rows, np.int64)
        if self.holds(field):
            for back in range(bins):
                result += self._row(field, (self.column - back) % self.bins)
        return result

    def ordered(self, field: str, slots: Ints) -> Ints:
        """(bins,) sums over these slots, oldest bin first."""
        result: Ints = np.roll(self._counts[field][:, slots].sum(axis=1, dtype=np.int64), -self.column - 1)
        return result

    def newest_of(self, field: str, bins: Ints) -> Ints:
        """(slots,) sum over the newest so many bins of each slot, the current one included."""
        result = np.zeros(self.rows, np.int64)
        if self.holds(field):
            for back in range(min(int(bins.max(initial=0)), self.bins)):
                result += np.where(bins > back, self._row(field, (self.column - back) % self.bins), 0)
        return result

    def _row(self, field: str, column: int) -> Int32s:
        return self._counts[field][column, : self.rows]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "now_bin": self.now_bin,
            "rows": self.rows,
            "newest": dict(self._newest),
            "counts": {name: self._counts[name][:, : self.rows].copy() for name in self.fields if self.holds(name)},
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.now_bin, self.rows = int(state["now_bin"]), int(state["rows"])
        for name in self.fields:
            counts = state["counts"].get(name)
            self._newest[name] = int(state["newest"][name])
            self._counts[name] = np.zeros((self.bins, self.rows), np.int32) if counts is None else np.array(counts)
            self._over[name] = self._counts[name].sum(axis=0, dtype=np.int32) - self._counts[name][self.column]


def _wider(array: Int32s, room: int, holds: bool) -> Int32s:
    """`array` with `room` slots, the new ones 0; one that holds nothing is untouched memory, which costs nothing."""
    grown = np.zeros((*array.shape[:-1], room), np.int32)
    if holds:
        grown[..., : array.shape[-1]] = array
    return grown
