"""The clock of the in-process bus: forward with the machine's clock, never back, never still. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class ForwardClock:
    """Bus time from the machine's clock, ns since the Unix epoch.

    A machine's clock that is set back must not stop bus time until it has caught up, for with it every stage would
    stand still: bus time then goes on at the rate of the steady clock.

    Examples
    --------
    >>> readings = iter([100, 110, 50, 60])
    >>> clock = ForwardClock(lambda: next(readings), iter([1, 11, 21, 31]).__next__)
    >>> [clock(), clock(), clock(), clock()]
    [100, 110, 120, 130]
    """

    machine: Callable[[], int]
    steady: Callable[[], int]
    """Any origin; it is never set."""
    _at_ns: int = -(1 << 63)
    _steady_ns: int = 0

    def __call__(self) -> int:
        """Bus time now."""
        steady_ns = self.steady()
        self._at_ns = max(self.machine(), self._at_ns + steady_ns - self._steady_ns)
        self._steady_ns = steady_ns
        return self._at_ns
