"""The boundaries of bus time at which a stage of sync does its work."""

from __future__ import annotations

from collections.abc import Iterator

from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters


class Ticks:
    """Every 100 ms boundary after the first message, once, in order; a jump over very many is taken in one stride."""

    def __init__(self, most: int, counters: Counters) -> None:
        self._most = most
        self._counters = counters
        self.next: int | None = None
        """The next boundary; None before `begin`."""

    def begin(self, bus_at_ns: int) -> bool:
        """A message of this instant came; whether it was the first."""
        if self.next is not None:
            return False
        self.next = (bus_at_ns // TICK_NS + 1) * TICK_NS
        return True

    def upto(self, now_ns: int) -> Iterator[int]:
        """Boundaries up to `now_ns`."""
        if self.next is None or now_ns < self.next:
            return
        behind = (now_ns - self.next) // TICK_NS - self._most
        if behind > 0:
            self._counters.add("ticks-skipped", n=behind)
            self.next += behind * TICK_NS
        while self.next <= now_ns:
            yield self.next
            self.next += TICK_NS
