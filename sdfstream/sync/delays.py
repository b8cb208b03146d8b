"""From corrected rows to published windows of one-way delay.

A window is numbered by reference time // window length. It closes once, for all paths, when reference time has passed
its end by the lateness; rows that come later count in the oldest window still open. So there is one row per path,
direction and window, and no delay is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sdfstream.numeric.group import Groups, group, quantile, ranked
from sdfstream.numeric.table import Table
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.estimates import CorrectedRows
from sdfstream.sync.intake import AcceptedExchanges
from sdfstream.sync.publish import ClosedWindow, DelayRows
from sdfstream.sync.registry import Roster

NO_PATH = -1
"""Path number of rows that never went through the network (two clocks of one host): they have no windows."""


class WindowRows(NamedTuple):
    """Rows as the windows keep them."""

    window: Int64s
    path: Int64s
    """`NO_PATH`: the row is dropped."""
    fwd_ns: Float64s
    """Corrected delay, ns; NaN: none (lost, or withheld)."""
    rev_ns: Float64s
    err_ns: Float64s
    lost: Bools
    ce_fwd: Bools
    ce_rev: Bools


class DelayWindows:
    """The open windows."""

    def __init__(self) -> None:
        self.closed: int | None = None
        """Newest closed window; None before the first."""
        self._rows: dict[int, list[WindowRows]] = {}

    def put(self, delays: WindowRows, newest: Int64s) -> None:
        """Keep rows; one for a closed window goes to the oldest open one, one from the future to its `newest`."""
        if (delays.path == NO_PATH).any():
            newest = newest[delays.path != NO_PATH]
            delays = WindowRows._make(column[delays.path != NO_PATH] for column in delays)
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
            self._rows.setdefault(w, []).append(WindowRows._make(column[mine] for column in delays))

    def close(self, until: int) -> list[ClosedWindow]:
        """Close every window up to and including `until`; figures of those that hold rows, oldest first."""
        due = sorted(w for w in self._rows if w <= until)
        if self.closed is None or until > self.closed:
            self.closed = until
        return [_closed(w, self._rows.pop(w)) for w in due]

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

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        rows = [[w, *_joined(r)] for w, r in sorted(self._rows.items())]
        return {"closed": self.closed, "rows": rows}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self.closed = state["closed"]
        self._rows = {int(w): [WindowRows._make(columns)] for w, *columns in state["rows"]}


def _joined(rows: list[WindowRows]) -> WindowRows:
    return WindowRows._make(np.concatenate(column) for column in zip(*rows, strict=True)) if len(rows) > 1 else rows[0]


def _closed(window: int, rows: list[WindowRows]) -> ClosedWindow:
    d = _joined(rows)
    g = group(d.path)
    paths = g.key.size
    ordered, start = ranked(g, [d.fwd_ns, d.rev_ns])
    # one element per path and direction, in this order
    shape = (paths, 2)
    n, lost, ce = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    figures: list[Any] = [np.empty(shape) for _ in range(5)]
    min_ns, p50_ns, p99_ns, max_ns, err_ns = figures
    lost[:, 0] = _count(g, d.lost)
    bars = d.err_ns[g.order]
    for direction, (delay, marked) in enumerate(((d.fwd_ns, d.ce_fwd), (d.rev_ns, d.ce_rev))):
        has = ~np.isnan(delay)
        n[:, direction] = _count(g, has)
        ce[:, direction] = _count(g, marked)
        # a group without a delay is all NaN, and so are its figures
        values, some = ordered[direction], Groups(g.order, start, np.maximum(n[:, direction], 1), g.key)
        min_ns[:, direction] = values[start]
        p50_ns[:, direction] = quantile(some, values, 0.5)
        p99_ns[:, direction] = quantile(some, values, 0.99)
        max_ns[:, direction] = values[start + some.size - 1]
        err_ns[:, direction] = np.maximum.reduceat(
            bars if has.all() else np.where(has[g.order], bars, -np.inf), g.start
        )
    err_ns[n == 0] = np.nan
    # a loss or a CE mark shows even without a delay
    shown = ((n > 0) | (lost > 0) | (ce > 0)).ravel()
    names = g.key.repeat(2)[shown], np.tile(np.arange(2), paths)[shown]
    return ClosedWindow(window, *names, *(column.ravel()[shown] for column in (n, lost, ce, *figures)))


def _count(g: Groups, which: Bools) -> Int64s:
    """How many rows of each group are marked."""
    if which.all():
        return g.size
    if not which.any():
        return np.zeros_like(g.size)
    return np.add.reduceat(which[g.order].astype(np.int64), g.start)


def excess(
    table: Table, path: Int64s, direction: Int64s, min_ns: Float64s, p50_ns: Float64s, at_ns: int, memory_ns: int
) -> Float64s:
    """Median over the path's remembered floor, after taking in this window's minimum; NaN where there is no delay.

    The floor is the smallest delay of the current and the previous stretch of `memory_ns`: it forgets a shorter route
    after one to two stretches, and no queue that stands for less than one can raise it.
    """
    age_ns = at_ns - table["floor_since_ns"][path]
    due = age_ns >= memory_ns
    if due.any():
        # by path, so that one path's floor does not depend on when others had rows
        rows, long_ago = path[due], age_ns[due] >= 2 * memory_ns
        table["floor_before_ns"][:, rows] = np.where(long_ago, np.inf, table["floor_ns"][:, rows])
        table["floor_ns"][:, rows] = np.inf
        table["floor_since_ns"][rows] = at_ns
    has = ~np.isnan(min_ns)
    table["floor_ns"][direction[has], path[has]] = np.minimum(table["floor_ns"][direction[has], path[has]], min_ns[has])
    floor = np.minimum(table["floor_ns"], table["floor_before_ns"])[direction, path]
    result: Float64s = np.where(has, p50_ns - np.where(np.isfinite(floor), floor, 0.0), np.nan)
    return result


REWIND_NS = 10 * NS_PER_S


class DelayBook:
    """Open windows on the reference clock's time line, and their publication.

    A delay whose error bar is too wide is withheld, and one of a row that is too old to be shown as present; both are
    counted. Losses and CE marks of a withheld row count: they need no clock.
    """

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._windows = DelayWindows()
        self._rows = DelayRows()

    def put(
        self,
        x: AcceptedExchanges,
        rows: CorrectedRows,
        path: Int64s,
        err_ns: Float64s,
        reference_ns: Int64s,
        now_ns: Int64s,
    ) -> None:
        """Rows wait for their window. `now_ns`: the present on the reference clock when each row came."""
        c = self._config
        old = now_ns - reference_ns > c.max_late_ns
        wide = err_ns > c.publish_err_ns
        hold: Bools = wide | old
        lost, ce_fwd, ce_rev = x.lost, x.ce_fwd, x.ce_rev
        fwd_ns, rev_ns = rows.fwd_ns, rows.rev_ns
        if hold.any():
            self._counters.add("owd-withheld", "unsynced", int((wide & ~lost & ~old).sum()))
            self._counters.add("owd-withheld", "stale", int(old.sum()))
            lost, ce_fwd, ce_rev = lost & ~old, ce_fwd & ~old, ce_rev & ~old
            fwd_ns, rev_ns = np.where(hold, np.nan, fwd_ns), np.where(hold, np.nan, rev_ns)
        window = reference_ns // c.window_ns
        if self._windows.closed is not None:
            late = window <= self._windows.closed
            if late.any():
                self._counters.add("owd-late", n=int((late & ~hold).sum()))
        self._windows.put(WindowRows(window, path, fwd_ns, rev_ns, err_ns, lost, ce_fwd, ce_rev), now_ns // c.window_ns)

    def close(self, by_ns: int, roster: Roster) -> list[Output]:
        """Close the windows that ended by `by_ns`."""
        until = by_ns // self._config.window_ns - 1
        if self._windows.closed is not None and until <= self._windows.closed:
            return []
        return self._publish(until, roster)

    def close_all(self, roster: Roster) -> list[Output]:
        """Close every window that holds rows."""
        newest = self._windows.newest()
        return [] if newest is None else self._publish(newest, roster)

    def rewound(self, now_ns: int, roster: Roster) -> list[Output]:
        """The reference may have jumped: far back, and windows are numbered afresh rather than stand still for long."""
        closed = self._windows.closed
        if closed is None or now_ns > closed * self._config.window_ns - REWIND_NS:
            return []
        out = self.close_all(roster)
        self._windows.closed = None
        self._counters.add("reference-rewound")
        return out

    def _publish(self, until: int, roster: Roster) -> list[Output]:
        c = self._config
        out: list[Output] = []
        for w in self._windows.close(until):
            if not w.path.size:
                continue
            over = excess(roster.paths, w.path, w.dir, w.min_ns, w.p50_ns, w.window * c.window_ns, c.floor_memory_ns)
            out += self._rows.outputs(w, over, roster.registry.endpoints, roster.registry.paths.keys, c.window_ns)
            self._counters.add("published", "owd", int(w.path.size))
        return out

    def renumber(self, old_paths: Int64s) -> None:
        """Paths got new numbers: `old_paths`: old numbers of those that stay."""
        self._windows.renumber(lambda path: np.searchsorted(old_paths, path))

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return self._windows.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._windows.restore(state)
