"""Allowed lateness: how long a window stays open after its end, as late as chunks have lately been reported."""

from __future__ import annotations

from typing import Any, Final

from sdfstream.records.units import NS_PER_MS

_TICKS: Final = 20
_MARGIN_NS: Final = 50 * NS_PER_MS


class Lateness:
    """The longest lag of the last 20 ticks (2 s) and a margin, between two bounds.

    A lag is reference time now, less the instant that a chunk was acknowledged. On an idle machine the lag is about
    one flush, on a loaded one many, and windows closed after a fixed time would miss half their chunks.
    """

    def __init__(self, least_ns: int, most_ns: int) -> None:
        self._least_ns, self._most_ns = least_ns, max(least_ns, most_ns)
        self._past: list[int] = []
        """Longest lag of each past tick, oldest first, ns."""
        self._now = 0
        """Longest lag of the present tick, ns."""

    def observe(self, lag_ns: int) -> None:
        """Take the longest lag of a message."""
        self._now = max(self._now, lag_ns)

    def tick(self) -> int:
        """End a tick; the allowed lateness from here on, ns."""
        self._past = [*self._past[1 - _TICKS :], self._now]
        self._now = 0
        return min(max(max(self._past) + _MARGIN_NS, self._least_ns), self._most_ns)

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [self._past, self._now]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._past, self._now = list(state[0]), state[1]
