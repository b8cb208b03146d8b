"""How far behind the bus the newest evidence is: the bridge from bus time to the hosts' time line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from sdfstream.records.units import NS_PER_S, Float64s

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

    def see(self, lag_ns: Float64s) -> None:
        """Take in the lags of some rows (NaN: unanswered). One far from what is known says nothing about the lag."""
        use = np.abs(lag_ns - self.value) < NEAR_NS if self._past else ~np.isnan(lag_ns)
        lag_ns = lag_ns[use]
        if lag_ns.size:
            self._now = min(self._now, float(lag_ns.min()))

    def turn(self) -> None:
        """A tick passes."""
        if self._now < math.inf:
            self._past = [*self._past[1 - _TICKS :], self._now]
            self._now = math.inf

    @property
    def value(self) -> float:
        """The lag in ns as of the last tick; 0 before anything was seen."""
        return min(self._past, default=0.0)

    def state(self) -> dict[str, Any]:
        """Everything."""
        return {"past": self._past, "now": self._now}

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._past, self._now = list(state["past"]), float(state["now"])
