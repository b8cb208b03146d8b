"""Bus time as an agent can know it: at least so late.

An agent has no clock of the bus, and its own may be wrong. But a message entered the bus before it was received, so
bus time now is at least ``bus_at_ns`` plus the steady time since it was received. The largest such bound counts. The
steady clock may run fast against the bus's, and its readings are whole nanoseconds, rounded down; so that the bound
stays one, the time since is shortened by 100 ppm and 1 ns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DRIFT: Final = 10_000
"""A steady clock is at most one part in this faster than the bus's: crystals are within 100 ppm."""
_READING_NS: Final = 1
"""The difference of two readings that were rounded down may be so much too long."""


@dataclass(slots=True)
class BusTime:
    """The best bound so far.

    Examples
    --------
    >>> time = BusTime()
    >>> time.heard(1_000_000, now_ns=5_000_000)
    >>> time.now(now_ns=5_020_000)
    1019997
    """

    _bus_at_ns: int = 0
    _heard_ns: int = 0

    def heard(self, bus_at_ns: int, now_ns: int) -> None:
        """A message that entered the bus at `bus_at_ns` was received at steady time `now_ns`."""
        if bus_at_ns > self.now(now_ns):
            self._bus_at_ns, self._heard_ns = bus_at_ns, now_ns

    def now(self, now_ns: int) -> int:
        """Bus time is at least this; 0 when nothing was heard yet."""
        if self._bus_at_ns == 0:
            return 0
        since_ns = max(0, now_ns - self._heard_ns)
        return self._bus_at_ns + max(0, since_ns - since_ns // _DRIFT - _READING_NS)
