"""Which NICs share a switch, as it has shown for a while.

Where few pairs are probed, one shorter round trip may make groups fall apart for a moment, and a moment later they are
as before. What is blamed then must not jump: groups that differ from those before count once they have stayed for a
second.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sdfstream.detect.inferred.floors import RoundTripFloors
from sdfstream.numeric.proximity import leaf_groups
from sdfstream.records.units import NS_PER_S, TICK_NS, Int64s

_STAYS_TICKS: Final = NS_PER_S // TICK_NS


class LeafGroups:
    """NICs that share a switch, by round trips."""

    def __init__(self, floors: RoundTripFloors) -> None:
        self.floors = floors
        self._tick = 0
        self._group = np.empty(0, np.int64)
        self._next = np.empty(0, np.int64)
        """What round trips say, where that is not `_group`; since which tick."""
        self._since = 0

    def begin(self, tick: int) -> None:
        """Enter the 100 ms boundary number `tick`."""
        self._tick = tick

    def of(self, nics: int) -> Int64s:
        """(nics,) smallest number among the NICs that share its switch; −1: not known (`leaf_groups`)."""
        now = leaf_groups(nics, *self.floors.pairs())
        if self._group.size != nics or (self._group < 0).all() or np.array_equal(now, self._group):
            self._group = self._next = now
        elif not np.array_equal(now, self._next):
            self._next, self._since = now, self._tick
        elif self._tick - self._since >= _STAYS_TICKS:
            self._group = now
        return self._group

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"group": self._group.copy(), "next": self._next.copy(), "ticks": [self._tick, self._since]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._group, self._next = (np.array(state[name], np.int64) for name in ("group", "next"))
        self._tick, self._since = map(int, state["ticks"])
