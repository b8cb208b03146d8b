"""Windows of chunks: rows wait here until their window closes.

A window is numbered by reference time // window length; a chunk counts in the window in which it was acknowledged. A
window closes once, for all queue pairs; chunks that come later count in the oldest window still open, so that no byte
is lost. A chunk that took longer than its own window marks the windows before it as waiting: in them its queue pair
had something to send and got nothing through.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric.group import Groups, group, group_values, quantile
from sdfstream.records.units import Float64s, Int64s


class ChunkRows(NamedTuple):
    """Chunks assigned to windows; unreported counts are −1, delays NaN."""

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

    def pick(self, which: Any) -> ChunkRows:
        """Some of the rows."""
        return ChunkRows._make(column[which] for column in self)


class QpWindow(NamedTuple):
    """One closed window: an element per queue pair; unreported counts are −1, delays NaN."""

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


class OpenWindows:
    """The open windows."""

    def __init__(self) -> None:
        self.closed: int | None = None
        """Newest closed window; None before the first."""
        self.waiting = 0
        """Rows in open windows."""
        self._rows: dict[int, list[ChunkRows]] = {}

    def put(self, rows: ChunkRows) -> int:
        """Store rows, late ones (of closed windows) in the oldest open window; the count of late rows."""
        late = 0
        if self.closed is not None:
            behind = rows.window <= self.closed
            late = int(behind.sum())
            if late:
                oldest = self.closed + 1  # `sent` too: no window before it is marked as waiting
                rows = rows._replace(
                    window=np.where(behind, oldest, rows.window), sent=np.where(behind, oldest, rows.sent)
                )
        self.waiting += rows.window.size
        for window in np.unique(rows.window).tolist():
            in_window = rows.window == window
            self._rows.setdefault(window, []).append(rows if in_window.all() else rows.pick(in_window))
        return late

    def close(self, until: int) -> list[QpWindow]:
        """Close every window up to and including `until`; figures of those that hold rows, oldest first."""
        self.closed = until if self.closed is None else max(self.closed, until)
        return [self._close(window) for window in sorted(w for w in self._rows if w <= until)]

    def close_beyond(self, most: int) -> list[QpWindow]:
        """Close the oldest windows until at most `most` rows wait."""
        closed = []
        while self.waiting > most:
            oldest = min(self._rows)
            self.closed = oldest if self.closed is None else max(self.closed, oldest)
            closed.append(self._close(oldest))
        return closed

    def restart(self) -> list[QpWindow]:
        """Reference time jumped: close everything and number windows afresh."""
        closed = self.close(max(self._rows, default=0))
        self.closed = None
        return closed

    def pairs(self) -> set[int]:
        """Queue pairs with rows in open windows."""
        return {pair for rows in self._rows.values() for table in rows for pair in np.unique(table.pair).tolist()}

    def _close(self, window: int) -> QpWindow:
        rows = _joined(self._rows.pop(window))
        self.waiting -= rows.window.size
        return _summary(window, rows)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"closed": self.closed, "rows": [list(_joined(rows)) for _, rows in sorted(self._rows.items())]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.closed = state["closed"]
        tables = [ChunkRows._make(columns) for columns in state["rows"]]
        self._rows = {int(rows.window[0]): [rows] for rows in tables}
        self.waiting = sum(rows.window.size for rows in tables)


def _joined(tables: list[ChunkRows]) -> ChunkRows:
    return (
        ChunkRows._make(np.concatenate(column) for column in zip(*tables, strict=True))
        if len(tables) > 1
        else tables[0]
    )


def _summary(window: int, rows: ChunkRows) -> QpWindow:
    by = group(rows.pair)
    last = by.order[by.start + by.size - 1]
    return QpWindow(
        window,
        by.key,
        np.minimum.reduceat(rows.sent[by.order], by.start),
        rows.path[last],
        by.size,
        _sum(by, rows.bytes),
        _sum(by, rows.packets),
        _sum_known(by, rows.ce),
        _sum_known(by, rows.retransmits),
        _spread(by, rows.pair, rows.owd),
        _spread(by, rows.pair, rows.duration)[1:],
        _largest(by, np.where(np.isnan(rows.owd), np.nan, rows.err)),
    )


def _sum(by: Groups, values: Int64s) -> Int64s:
    result: Int64s = np.add.reduceat(values[by.order], by.start)
    return result


def _sum_known(by: Groups, counts: Int64s) -> Int64s:
    """Sum of the reported counts; −1 where none was reported."""
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


def waiting_windows(closed: QpWindow, published: Iterable[int], most: int) -> tuple[Int64s, Int64s, int]:
    """The windows before this one in which its queue pairs only waited: (index into them, window), and how many
    were left out because a queue pair would have more than `most`.

    `published` is the newest published window of each queue pair of `closed`.
    """
    first = np.maximum(closed.since, np.fromiter(published, np.int64, closed.pair.size) + 1)
    missing = np.maximum(closed.window - first, 0)
    count = np.minimum(missing, most)
    index = np.repeat(np.arange(count.size), count)
    offset = np.arange(index.size) - np.repeat(np.cumsum(count) - count, count)
    return index, closed.window - count[index] + offset, int((missing - count).sum())
