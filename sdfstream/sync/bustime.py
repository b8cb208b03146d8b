"""Bus time: the ticks at which sync does its work, and how far behind the bus the evidence is."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from sdfstream.records.units import NS_PER_S, TICK_NS, Float64s
from sdfstream.stats import Counters

LONGEST_GAP_NS: Final = 60 * NS_PER_S
"""Clocks carried on without evidence for longer are not worth carrying on, and bus time that jumped so far may not be
the hosts' time at all: sync begins anew."""


class Ticks:
    """Every 100 ms boundary after the first message, once, in order; a jump over very many is taken in one stride."""

    def __init__(self, most: int, counters: Counters) -> None:
        self._most = most
        self._counters = counters
        self.next: int | None = None
        """The next boundary; None before `begin`."""

    def begin(self, bus_at_ns: int) -> None:
        """The first message is of this instant."""
        self.next = (bus_at_ns // TICK_NS + 1) * TICK_NS

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


_TICKS = 20
NEAR_NS = 10.0 * NS_PER_S
"""Rows further than this from the present are backlog, or stamps of a clock that jumped."""


class Lag:
    """Smallest (bus time − corrected t4) over the last 20 ticks that held rows.

    Host clocks may differ from the bus's clock by hours; the smallest lag is what the wire, the agents and the bus
    always take. now = bus time − lag is then a time that some probe has certainly reached. A minimum over two seconds
    follows a bus clock that runs at another rate.
    """

    def __init__(self) -> None:
        self._past: list[float] = []
        self._now = math.inf

    def add(self, lag_ns: Float64s) -> None:
        """Take in the lags of some rows (NaN: unanswered). Those further than `NEAR_NS` from the lag are left out."""
        use = np.abs(lag_ns - self.value) < NEAR_NS if self._past else ~np.isnan(lag_ns)
        lag_ns = lag_ns[use]
        if lag_ns.size:
            self._now = min(self._now, float(lag_ns.min()))

    def end_tick(self) -> None:
        """A tick passes."""
        if self._now < math.inf:
            self._past = [*self._past[1 - _TICKS :], self._now]
            self._now = math.inf

    @property
    def value(self) -> float:
        """The lag in ns as of the last tick; 0 before anything was seen."""
        return min(self._past, default=0.0)

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "now": self._now}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._past, self._now = list(state["past"]), float(state["now"])


_STRAGGLERS = 0.01


class Spread:
    """The largest lag that rows usually have: once it has passed, a window will hardly get another row.

    Of every tick the oldest row of all messages, but for the slowest ones with up to a hundredth of the rows (one agent
    of many that is late must not hold up all); of those the largest over the last 20 ticks that held rows. It is as
    long as agents gather and the follow-up takes, whatever their settings.
    """

    def __init__(self) -> None:
        self._past: list[float] = []
        self._seen: list[tuple[float, int]] = []
        """Of this tick's messages: lag of the oldest row, rows."""

    def add(self, lag_ns: Float64s) -> None:
        """Take in the lags of one message's answered rows."""
        self._seen.append((float(lag_ns.max()), lag_ns.size))

    def end_tick(self) -> None:
        """A tick passes."""
        if not self._seen:
            return
        slowest = sorted(self._seen, reverse=True)
        spare = _STRAGGLERS * sum(rows for _, rows in slowest)
        usual_ns2 = slowest[0][0]
        for lag_ns, rows in slowest:
            usual_ns2 = lag_ns
            spare -= rows
            if spare < 0:
                break
        self._past = [*self._past[1 - _TICKS :], usual_ns2]
        self._seen = []

    @property
    def value(self) -> float:
        """The lag in ns as of the last tick; infinite until 20 ticks held rows."""
        return max(self._past) if len(self._past) == _TICKS else math.inf

    def snapshot(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "seen": [list(one) for one in self._seen]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `snapshot` gave."""
        self._past = [float(lag) for lag in state["past"]]
        self._seen = [(float(lag), int(rows)) for lag, rows in state["seen"]]
