"""A clock that is wrong on purpose: exact integer arithmetic, the same in every process that has the same settings.

c(t) = t + offset + skew · (t − epoch) + wander(t), t the system clock in ns. The wander is Brownian motion at knots
100 ms apart, joined by straight lines. Any knot is found without its predecessors by Lévy's construction: the value
at the middle of a dyadic interval is the mean of its ends plus a normal deviate that depends on the seed and the
interval alone. So a reading needs no history, and two processes agree to the nanosecond.
"""

from __future__ import annotations

import hashlib
import math
import struct
from typing import Final

import numpy as np

from sdfstream.probes.config import VirtualClock
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Int64s

KNOT_NS: Final = 100 * NS_PER_MS
LEVELS: Final = 37
"""2³⁷ knots of 100 ms cover 435 years on either side of the epoch."""
_CACHED_KNOTS: Final = 256
_MICRO_PPB: Final = 1_000_000


class Clock:
    """Reads a host's (virtual) clock.

    Parameters
    ----------
    settings : VirtualClock or None
        None: the system clock itself.

    Notes
    -----
    Skew is stored in steps of 1e-6 ppb; |skew| must not exceed 1e6 ppb (1000 ppm). The result is exact to the ns: no
    absolute time passes through a float.
    """

    def __init__(self, settings: VirtualClock | None = None) -> None:
        self.settings = settings
        self.true = settings is None
        """Whether this is the system clock itself: what is shown at an instant is that instant."""
        wrong = settings or VirtualClock()
        if abs(wrong.skew_ppb) > 1e6:
            raise ValueError("skew_ppb must lie within ±1e6")
        self.offset_ns = round(wrong.offset_ns)
        self.skew_micro_ppb = round(wrong.skew_ppb * _MICRO_PPB)
        self._sigma_ns = wrong.wander_ns_per_sqrt_s
        self._seed = wrong.seed
        self._epoch_at_ns = wrong.epoch_at_ns
        self._knots: dict[int, int] = {}

    def reading(self, system_ns: Int64s) -> Int64s:
        """What the clock shows at the system instants `system_ns` (n,); `ABSENT_NS` stays."""
        if self.true or not len(system_ns):
            return system_ns
        elapsed = system_ns - self._epoch_at_ns
        result = system_ns + self.offset_ns
        if self.skew_micro_ppb:
            result += self._skewed(elapsed)
        if self._sigma_ns:
            result += self._wander(elapsed, system_ns != ABSENT_NS)
        return np.where(system_ns == ABSENT_NS, system_ns, result)

    def at(self, system_ns: int) -> int:
        """`reading` of one instant."""
        return system_ns if self.true else int(self.reading(np.array([system_ns], dtype=np.int64))[0])

    def knots_ns(self, first: int, count: int) -> Int64s:
        """The walk at `count` knots from `first` (0 at the epoch) on: all that its readings between them depend on."""
        return np.array([self._knot(k) for k in range(first, first + count)], dtype=np.int64)

    def _skewed(self, elapsed: Int64s) -> Int64s:
        # k · elapsed / 10¹⁵ with k in 10⁻⁶ ppb, rounded down, cut so that no product leaves int64
        ppb, rest = divmod(self.skew_micro_ppb, _MICRO_PPB)
        seconds, below = np.divmod(elapsed, NS_PER_S)
        nano = seconds * (rest * 1_000) + below * ppb + below * rest // _MICRO_PPB
        result: Int64s = seconds * ppb + nano // NS_PER_S
        return result

    def _wander(self, elapsed: Int64s, present: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Int64s:
        knot, beyond = np.divmod(np.where(present, elapsed, 0), KNOT_NS)
        first = int(knot.min())
        if int(knot.max()) - first <= 16:
            values = np.array([self._knot(k) for k in range(first, int(knot.max()) + 2)], dtype=np.int64)
            index = knot - first
            low, high = values[index], values[index + 1]
        else:
            spots, index = np.unique(knot, return_inverse=True)
            low = np.array([self._knot(k) for k in spots.tolist()], dtype=np.int64)[index]
            high = np.array([self._knot(k + 1) for k in spots.tolist()], dtype=np.int64)[index]
        result: Int64s = low + (high - low) * beyond // KNOT_NS
        return result

    def _knot(self, index: int) -> int:
        """The walk at knot `index` (0 at the epoch), ns."""
        known = self._knots.get(index)
        if known is None:
            if len(self._knots) >= _CACHED_KNOTS:
                self._knots.clear()
            known = self._knots[index] = round(self._brownian(index))
        return known

    def _brownian(self, index: int) -> float:
        sign, index = (1, index) if index >= 0 else (-1, -index)
        step = self._sigma_ns * math.sqrt(KNOT_NS / NS_PER_S)
        width = 1 << LEVELS
        low = 0.0
        high = step * math.sqrt(width) * self._normal(sign, 0, 0)
        base = 0
        while width > 1:
            if index == base:
                return low
            half = width >> 1
            middle = (low + high) / 2 + step * math.sqrt(width) / 2 * self._normal(sign, base + half, width)
            if index >= base + half:
                base, low = base + half, middle
            else:
                high = middle
            width = half
        return low

    def _normal(self, sign: int, index: int, width: int) -> float:
        """A standard normal deviate that depends on the seed and the arguments only (Box and Muller)."""
        digest = hashlib.blake2b(struct.pack("<qqqq", self._seed, sign, index, width), digest_size=16).digest()
        a, b = struct.unpack("<QQ", digest)
        radius = math.sqrt(-2.0 * math.log((a + 1) / 2**64))
        return radius * math.cos(2.0 * math.pi * (b / 2**64))
