"""Counts of the recent past, per slot and time bin: a ring of columns that is wiped as time goes on."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.table import Table

Ints = npt.NDArray[np.int64]


class RingBins:
    """Sliding-window counts of many slots at once.

    Parameters
    ----------
    bins : int
        Bins in the window.
    width_ns : int
        Length of a bin; the window spans ``bins * width_ns``, the newest bin being under way.
    fields : tuple of str
        What is counted; one (slots, bins) int32 array each.

    Notes
    -----
    A bin is wiped when time enters it again, so memory and cost do not depend on the length of the stream.
    """

    def __init__(self, bins: int, width_ns: int, fields: tuple[str, ...]) -> None:
        self.bins, self.width_ns, self.fields = bins, width_ns, fields
        self.table = Table({name: np.zeros(bins, np.int32) for name in fields})
        self.now_bin = -1

    def advance(self, now_ns: int) -> None:
        """Let the window end at `now_ns`; time never goes back."""
        new = now_ns // self.width_ns
        if self.now_bin >= 0 and new > self.now_bin:
            stale = np.arange(self.now_bin + 1, min(new, self.now_bin + self.bins) + 1) % self.bins
            for name in self.fields:
                self.table[name][:, stale] = 0
        self.now_bin = max(self.now_bin, new)

    @property
    def column(self) -> int:
        """Column of the bin under way."""
        return self.now_bin % self.bins

    def add(self, field: str, slots: Ints, counts: npt.ArrayLike = 1) -> None:
        """Add to the bin under way; a slot may occur several times."""
        each = np.full(slots.shape, counts, np.int32)  # of the column's own type: `add.at` is 30 times faster then
        np.add.at(self.table[field][:, self.column], slots, each)

    def take_back(self, field: str, slots: Ints, bin_numbers: Ints) -> None:
        """Take one off the bin of that number where it is still in the window (and above zero)."""
        there = (bin_numbers > self.now_bin - self.bins) & (bin_numbers <= self.now_bin)
        column = bin_numbers[there] % self.bins
        np.add.at(self.table[field], (slots[there], column), np.int32(-1))
        np.maximum(self.table[field], 0, out=self.table[field])

    def totals(self, field: str) -> npt.NDArray[np.int64]:
        """(slots,) sum over the window."""
        result: npt.NDArray[np.int64] = self.table[field].sum(axis=1, dtype=np.int64)
        return result

    def recent(self, field: str, bins: int) -> Ints:
        """(slots,) sum over the newest `bins` bins, the one under way included."""
        if bins >= self.bins:
            return self.totals(field)
        result: Ints = self.table[field][:, (self.column - np.arange(bins)) % self.bins].sum(axis=1, dtype=np.int64)
        return result

    def ordered(self, field: str, slots: Ints) -> Ints:
        """(bins,) sums over these slots, oldest bin first."""
        result: Ints = np.roll(self.table[field][slots].sum(axis=0, dtype=np.int64), -self.column - 1)
        return result

    def freeze(self) -> dict[str, object]:
        """The whole state as plain values and arrays."""
        return {"now_bin": self.now_bin, "table": self.table.freeze()}

    def thaw(self, state: dict[str, object]) -> None:
        """Take up a state made by `freeze`."""
        self.now_bin = int(state["now_bin"])  # type: ignore[call-overload]
        self.table.thaw(state["table"])  # type: ignore[arg-type]
