"""Windows of chunks: rows wait here until their window closes.

A window is numbered by reference time // window length; a chunk counts in the window in which it was acknowledged. A
window closes once, for all queue pairs; chunks that come later count in the oldest window still open, so that no byte
is lost. A chunk that took longer than its own window tells of the windows before it too: in them its queue pair had
something to send and got nothing through.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric.group import Groups, group, group_values, quantile
from sdfstream.records.units import Float64s, Int64s


class Rows(NamedTuple):
    """Chunks as the windows keep them; counts that were not told are −1, delays NaN."""

    window: Int64s
    sent: Int64s
    """Window in which its first packet left."""
    pair: Int64s
    path: Int64s
    bytes: Int64s
    packets: Int64s
    ce: Int64s
    retransmits: Int64s
    owd: Float64s
    duration: Float64s
    err: Float64s

    def pick(self, which: Any) -> Rows:
        """Some of the rows."""
        return Rows._make(column[which] for column in self)


class Figures(NamedTuple):
    """One closed window: an element per queue pair; counts that nobody told are −1, delays NaN."""

    window: int
    pair: Int64s
    since: Int64s
    """Window in which the oldest of its chunks was sent."""
    path: Int64s
    n: Int64s
    bytes: Int64s
    packets: Int64s
    ce: Int64s
    retransmits: Int64s
    owd: tuple[Float64s, Float64s, Float64s]
    """Smallest, median, largest."""
    duration: tuple[Float64s, Float64s]
    """Median, longest."""
    err: Float64s


class Windows:
    """The open windows."""

    def __init__(self) -> None:
        self.closed: int | None = None
        """Newest closed window; None before the first."""
        self.waiting = 0
        """Rows in open windows."""
        self._rows: dict[int, list[Rows]] = {}

    def put(self, rows: Rows) -> int:
        """Keep rows, those of closed windows in the oldest open one; how many of those there were."""
        late = 0
        if self.closed is not None:
            behind = rows.window <= self.closed
            late = int(behind.sum())
            if late:
                oldest = self.closed + 1  # and it did not wait until then
                rows = rows._replace(
                    window=np.where(behind, oldest, rows.window), sent=np.where(behind, oldest, rows.sent)
                )
        self.waiting += rows.window.size
        for window in np.unique(rows.window).tolist():
            mine = rows.window == window
            self._rows.setdefault(window, []).append(rows if mine.all() else rows.pick(mine))
        return late

    def close(self, until: int) -> list[Figures]:
        """Close every window up to and including `until`; figures of those that hold rows, oldest first."""
        self.closed = until if self.closed is None else max(self.closed, until)
        return [self._close(window) for window in sorted(w for w in self._rows if w <= until)]

    def crowded(self, most: int) -> list[Figures]:
        """Close the oldest windows until at most `most` rows wait."""
        figures = []
        while self.waiting > most:
            oldest = min(self._rows)
            self.closed = oldest if self.closed is None else max(self.closed, oldest)
            figures.append(self._close(oldest))
        return figures

    def restart(self) -> list[Figures]:
        """Reference time jumped: close everything and number windows afresh."""
        figures = self.close(max(self._rows, default=0))
        self.closed = None
        return figures

    def pairs(self) -> set[int]:
        """Queue pairs with rows in open windows."""
        return {pair for rows in self._rows.values() for part in rows for pair in np.unique(part.pair).tolist()}

    def _close(self, window: int) -> Figures:
        rows = _joined(self._rows.pop(window))
        self.waiting -= rows.window.size
        return _figures(window, rows)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"closed": self.closed, "rows": [list(_joined(rows)) for _, rows in sorted(self._rows.items())]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.closed = state["closed"]
        parts = [Rows._make(columns) for columns in state["rows"]]
        self._rows = {int(rows.window[0]): [rows] for rows in parts}
        self.waiting = sum(rows.window.size for rows in parts)


def _joined(parts: list[Rows]) -> Rows:
    return Rows._make(np.concatenate(column) for column in zip(*parts, strict=True)) if len(parts) > 1 else parts[0]


def _figures(window: int, rows: Rows) -> Figures:
    by = group(rows.pair)
    last = by.order[by.start + by.size - 1]
    return Figures(
        window,
        by.key,
        np.minimum.reduceat(rows.sent[by.order], by.start),
        rows.path[last],
        by.size,
        _sum(by, rows.bytes),
        _sum(by, rows.packets),
        _told(by, rows.ce),
        _told(by, rows.retransmits),
        _spread(by, rows.pair, rows.owd),
        _spread(by, rows.pair, rows.duration)[1:],
        _largest(by, np.where(np.isnan(rows.owd), np.nan, rows.err)),
    )


def _sum(by: Groups, values: Int64s) -> Int64s:
    result: Int64s = np.add.reduceat(values[by.order], by.start)
    return result


def _told(by: Groups, counts: Int64s) -> Int64s:
    """Sum of the counts that were told; −1 where none was."""
    known = _sum(by, (counts >= 0).astype(np.int64))
    return np.where(known > 0, _sum(by, np.maximum(counts, 0)), -1)


def _largest(by: Groups, values: Float64s) -> Float64s:
    result: Float64s = np.fmax.reduceat(values[by.order], by.start)
    return result


def _spread(by: Groups, pair: Int64s, values: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """Smallest, median and largest of each group's values; NaN where it has none."""
    has = ~np.isnan(values)
    inner, ordered = group_values(pair[has], values[has])
    at = np.searchsorted(by.key, inner.key)
    low, mid, high = (np.full(by.key.size, np.nan) for _ in range(3))
    if inner.key.size:
        low[at] = ordered[inner.start]
        mid[at] = quantile(inner, ordered, 0.5)
        high[at] = ordered[inner.start + inner.size - 1]
    return low, mid, high


def waited(figures: Figures, told: Iterable[int], most: int) -> tuple[Int64s, Int64s, int]:
    """The windows before this one that its queue pairs only waited through: (index into them, window), and how many
    were left out because a queue pair would have more than `most`.

    `told` is the newest window already published of each queue pair of `figures`.
    """
    first = np.maximum(figures.since, np.fromiter(told, np.int64, figures.pair.size) + 1)
    missing = np.maximum(figures.window - first, 0)
    count = np.minimum(missing, most)
    index = np.repeat(np.arange(count.size), count)
    place = np.arange(index.size) - np.repeat(np.cumsum(count) - count, count)
    return index, figures.window - count[index] + place, int((missing - count).sum())
