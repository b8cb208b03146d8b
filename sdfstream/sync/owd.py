"""Windows of corrected one-way delay: rows wait here until their window closes.

A window is numbered by reference time // window length. It closes once, for all paths, when reference time has passed
its end by the lateness; rows that come later count in the oldest window still open. So there is one row per path,
direction and window, and no delay is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import group, group_values, quantile
from sdfstream.records.units import Bools, Float64s, Int64s

NO_PATH = -1
"""Path number of rows that never went through the network (two clocks of one host): they have no windows."""


class Delays(NamedTuple):
    """Rows of one message as the windows keep them."""

    window: Int64s
    path: Int64s
    """`NO_PATH`: the row is dropped."""
    fwd: Float64s
    """Corrected delay, ns; NaN: none (lost, or withheld)."""
    rev: Float64s
    err: Float64s
    lost: Bools
    ce_fwd: Bools
    ce_rev: Bools


class Closed(NamedTuple):
    """Figures of one closed window, one element per (path, dir); NaN where there is no delay."""

    window: int
    path: Int64s
    dir: Int64s
    n: Int64s
    lost: Int64s
    ce: Int64s
    low: Float64s
    p50: Float64s
    p99: Float64s
    high: Float64s
    err: Float64s


class Windows:
    """The open windows."""

    def __init__(self) -> None:
        self.closed: int | None = None
        """Newest closed window; None before the first."""
        self._rows: dict[int, list[Delays]] = {}

    def put(self, delays: Delays, newest: int) -> None:
        """Keep rows; one for a closed window goes to the oldest open one, one from the future to `newest`."""
        if (delays.path == NO_PATH).any():
            delays = Delays._make(column[delays.path != NO_PATH] for column in delays)
        if not delays.window.size:
            return
        window = np.minimum(delays.window, newest)
        if self.closed is not None:
            window = np.maximum(window, self.closed + 1)
        first = int(window[0])
        if (window == first).all():
            self._rows.setdefault(first, []).append(delays._replace(window=window))
            return
        for w in np.unique(window).tolist():
            mine = window == w
            self._rows.setdefault(w, []).append(Delays._make(column[mine] for column in delays))

    def close(self, until: int) -> list[Closed]:
        """Close every window up to and including `until`; figures of those that hold rows, oldest first."""
        due = sorted(w for w in self._rows if w <= until)
        if self.closed is None or until > self.closed:
            self.closed = until
        return [_figures(w, self._rows.pop(w)) for w in due]

    @property
    def waiting(self) -> int:
        """Rows in open windows."""
        return sum(d.path.size for rows in self._rows.values() for d in rows)

    def newest(self) -> int | None:
        """Newest window that holds rows."""
        return max(self._rows, default=None)

    def renumber(self, path: Callable[[Int64s], Int64s]) -> None:
        """Paths got new numbers."""
        self._rows = {w: [d._replace(path=path(d.path)) for d in rows] for w, rows in self._rows.items()}

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        rows = [[w, *_joined(r)] for w, r in sorted(self._rows.items())]
        return {"closed": self.closed, "rows": rows}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self.closed = state["closed"]
        self._rows = {int(w): [Delays._make(columns)] for w, *columns in state["rows"]}


def _joined(rows: list[Delays]) -> Delays:
    return Delays._make(np.concatenate(column) for column in zip(*rows, strict=True)) if len(rows) > 1 else rows[0]


def _figures(window: int, rows: list[Delays]) -> Closed:
    d = _joined(rows)
    # one element per delay and direction: key = path · 2 + dir
    paths = np.concatenate([d.path * 2, d.path * 2 + 1])
    values = np.concatenate([d.fwd, d.rev])
    has = ~np.isnan(values)
    nothing = d.lost | (has[: d.path.size] == 0)
    counts = group(np.concatenate([paths[has], (d.path * 2)[d.lost], _marked(d, nothing)]))
    key = counts.key
    by, ordered = group_values(paths[has], values[has])
    at = np.searchsorted(key, by.key)
    size = key.size
    figures = [np.full(size, np.nan) for _ in range(5)]
    n = np.zeros(size, dtype=np.int64)
    if by.key.size:
        n[at] = by.size
        figures[0][at] = ordered[by.start]
        figures[1][at] = quantile(by, ordered, 0.5)
        figures[2][at] = quantile(by, ordered, 0.99)
        figures[3][at] = ordered[by.start + by.size - 1]
        figures[4][at] = np.maximum.reduceat(np.concatenate([d.err, d.err])[has][by.order], by.start)
    lost = _count(key, (d.path * 2)[d.lost])
    ce = _count(key, np.concatenate([(d.path * 2)[d.ce_fwd], (d.path * 2 + 1)[d.ce_rev]]))
    return Closed(window, key >> 1, key & 1, n, lost, ce, *figures)


def _marked(d: Delays, nothing: Bools) -> Int64s:
    """Keys of (path, dir) whose withheld rows carried a CE mark: the mark shows even without a delay."""
    return np.concatenate([(d.path * 2)[d.ce_fwd & nothing], (d.path * 2 + 1)[d.ce_rev & np.isnan(d.rev)]])


def _count(keys: npt.NDArray[Any], which: Int64s) -> Int64s:
    """How many of `which` are each of the sorted `keys`."""
    return np.bincount(np.searchsorted(keys, which), minlength=keys.size).astype(np.int64)
