"""Windows of corrected one-way delay: rows wait here until their window closes.

A window is numbered by reference time // window length. It closes once, for all paths, when reference time has passed
its end by the lateness; rows that come later count in the oldest window still open. So there is one row per path,
direction and window, and no delay is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric.group import Groups, group, quantile, ranked
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
        first, last = int(window.min()), int(window.max())
        if first == last:
            self._rows.setdefault(first, []).append(delays._replace(window=window))
            return
        near = last - first < window.size
        for w in range(first, last + 1) if near else np.unique(window).tolist():
            mine = np.flatnonzero(window == w)
            if not mine.size:
                continue
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
    g = group(d.path)
    paths = g.key.size
    ordered, start = ranked(g, [d.fwd, d.rev])
    # one element per path and direction, in this order
    shape = (paths, 2)
    n, lost, ce = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    figures: list[Any] = [np.empty(shape) for _ in range(5)]
    low, p50, p99, high, err = figures
    lost[:, 0] = _count(g, d.lost)
    bars = d.err[g.order]
    for lane, (delay, marked) in enumerate(((d.fwd, d.ce_fwd), (d.rev, d.ce_rev))):
        has = ~np.isnan(delay)
        n[:, lane] = _count(g, has)
        ce[:, lane] = _count(g, marked)
        # a group without a delay is all NaN, and so are its figures
        values, some = ordered[lane], Groups(g.order, start, np.maximum(n[:, lane], 1), g.key)
        low[:, lane] = values[start]
        p50[:, lane] = quantile(some, values, 0.5)
        p99[:, lane] = quantile(some, values, 0.99)
        high[:, lane] = values[start + some.size - 1]
        err[:, lane] = np.maximum.reduceat(bars if has.all() else np.where(has[g.order], bars, -np.inf), g.start)
    err[n == 0] = np.nan
    # a loss or a CE mark shows even without a delay
    shown = ((n > 0) | (lost > 0) | (ce > 0)).ravel()
    names = g.key.repeat(2)[shown], np.tile(np.arange(2), paths)[shown]
    return Closed(window, *names, *(column.ravel()[shown] for column in (n, lost, ce, *figures)))


def _count(g: Groups, which: Bools) -> Int64s:
    """How many rows of each group are marked."""
    if which.all():
        return g.size
    if not which.any():
        return np.zeros_like(g.size)
    return np.add.reduceat(which[g.order].astype(np.int64), g.start)
