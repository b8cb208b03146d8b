"""Excess delays of all directed paths, gathered by equal spans of reference time."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_HOLD_NS: Final = 1_500_000_000
"""A span is closed when windows of so long after its end have come: until then ports are read and queue pairs told."""
_MOST_BEHIND: Final = 10
"""Spans that may wait; of a longer gap only the newest are closed."""
_BOUND: Final = 3.3
"""Standard errors in a clock's error bar, which holds at 99.9 %."""
WARM: Final = 50
"""Quiet windows from which a path is used: before, its normal may be a queue that nothing tells from it."""
_STANDS: Final = 3.0
"""Standard deviations above normal from which a window shows a queue."""


class AssessedWindows(NamedTuple):
    """Windows of warm paths beside what is normal for them; every array is (rows,)."""

    number: Ints
    """Directed path: 2·session + (0 fwd, 1 rev)."""
    start_ns: Ints
    """Reference time."""
    above_ns: Floats
    """Median delay less the path's normal."""
    normal_ns: Floats
    """Mean of its quiet windows."""
    variance_ns2: Floats
    """Of the path's quiet windows."""
    learnt: Ints
    """Windows that its normal rests on."""
    err_ns: Floats
    """Error bar of the clocks."""


def _some(windows: AssessedWindows, rows: Bools) -> AssessedWindows:
    columns: list[Any] = [column[rows] for column in windows]
    return AssessedWindows(*columns)


class PathExcess(NamedTuple):
    """Directed paths in one span; every array is (paths,)."""

    number: Ints
    excess_ns: Floats
    """Mean over the span's windows; below 0 by noise."""
    clock_ns: Floats
    """What the clocks add to its standard error."""
    n: Ints
    """Windows."""
    held: Floats
    """Share of them in which the path stood in a queue."""
    normal_ns: Floats
    """What was normal, at the first of them; likewise:"""
    scatter_ns: Floats
    """Standard deviation of its quiet windows."""
    learnt: Ints
    """Windows that these rest on."""


class ExcessSpans:
    """Judged windows by span; a span's number is reference time // `length_ns`."""

    def __init__(self, length_ns: int) -> None:
        self.length_ns = length_ns
        self.newest_ns = -1
        """Start of the newest windows; −1: none has come."""
        self.closed = -1
        """Newest span that was closed."""
        self._waiting: list[AssessedWindows] = []

    def take(self, windows: AssessedWindows) -> None:
        """Take windows of one tick; those of closed spans are too late, those of new paths too early."""
        if not windows.number.size:
            return
        newest_ns = int(np.median(windows.start_ns))
        jumped = abs(newest_ns - self.newest_ns) > _MOST_BEHIND * max(self.length_ns, NS_PER_S)
        if self.newest_ns < 0 or jumped:  # the first ones, or reference time has stepped
            self.newest_ns, self.closed = newest_ns, newest_ns // self.length_ns - 1
            self._waiting.clear()
        self.newest_ns = max(self.newest_ns, newest_ns)
        fresh = (windows.start_ns // self.length_ns > self.closed) & (windows.learnt >= WARM)
        self._waiting.append(windows if fresh.all() else _some(windows, fresh))

    def due(self) -> int | None:
        """The next span to close; None: it is not complete yet."""
        span = self.closed + 1
        return span if self.newest_ns >= 0 and (span + 1) * self.length_ns + _HOLD_NS <= self.newest_ns else None

    def close(self, span: int) -> PathExcess:
        """The paths of a span that is due."""
        self.closed = span
        every = self._joined()
        mine = every.start_ns // self.length_ns == span
        later = every.start_ns // self.length_ns > span
        self._waiting = [_some(every, later)] if later.any() else []
        return _of_paths(_some(every, mine))

    def _joined(self) -> AssessedWindows:
        if not self._waiting:
            none, no_ns = np.empty(0, np.int64), np.empty(0)
            return AssessedWindows(none, none, no_ns, no_ns, no_ns, none, no_ns)
        every: list[Any] = [np.concatenate(column) for column in zip(*self._waiting, strict=True)]
        return AssessedWindows(*every)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"newest": self.newest_ns, "closed": self.closed, "waiting": list(self._joined())}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.newest_ns, self.closed = int(state["newest"]), int(state["closed"])
        waiting = AssessedWindows(*(np.asarray(column) for column in state["waiting"]))
        self._waiting = [waiting] if waiting.number.size else []


def _of_paths(windows: AssessedWindows) -> PathExcess:
    number, first, inverse = np.unique(windows.number, return_index=True, return_inverse=True)
    n = np.bincount(inverse, minlength=number.size)
    mean = np.bincount(inverse, windows.above_ns, number.size) / np.maximum(n, 1)
    high = windows.above_ns > _STANDS * np.sqrt(windows.variance_ns2)
    held = np.bincount(inverse, high, number.size) / np.maximum(n, 1)
    scatter, clock = np.sqrt(windows.variance_ns2[first]), windows.err_ns[first] / _BOUND
    return PathExcess(
        number, mean, clock, n.astype(np.int64), held, windows.normal_ns[first], scatter, windows.learnt[first]
    )
