"""The machine's clock against its oscillator: pairs of CLOCK_REALTIME and CLOCK_MONOTONIC_RAW, some seconds.

The kernel's raw clock is never adjusted. So the pairs give the raw instant of a reading, the rate at which the clock is
steered now, and its steps and slews. sync learns of those from the probes within two seconds; until then its rows
describe the clock as it was. So the clock's distance from its course of three seconds ago is *unexplained*, and is
added to the bound.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field
from typing import Final

MOST_PAIRS: Final = 80
LEAST_PAIR_NS: Final = 80_000_000
"""Between two stored pairs at least, so that `MOST_PAIRS` reach back more than six seconds."""
MOST_WIDTH_NS: Final = 20_000
"""A pair whose two readings are further apart is not used."""
EXTRAPOLATE_NS: Final = 200_000_000
"""Longest extrapolation beyond the last pair, by the rate."""
RATE_NS: Final = 1_000_000_000
LEAST_RATE_NS: Final = 150_000_000
UNEXPLAINED_NS: Final = 3_000_000_000
"""Time for which a movement counts as unexplained; sync flags a step within two seconds."""
COURSE_NS: Final = 2_000_000_000
"""Time before that over which the clock's course is measured."""
NOISE_NS: Final = 3_000
"""A smaller distance counts as none: the two readings are some 100 ns apart, extrapolated over 2 s to 1 µs."""
STEP_SHARE: Final = 0.2
"""A move larger than this share of the time passed is a step: no daemon slews that fast."""


@dataclass(slots=True)
class History:
    """Pairs in order, all of one course: a step begins a new one."""

    _system_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_PAIRS))
    _raw_ns: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_PAIRS))
    _steps: deque[tuple[int, int]] = field(default_factory=deque)
    """(raw instant, ns without sign)."""

    def add(self, system_ns: int, raw_ns: int, width_ns: int) -> str:
        """Take a pair read within `width_ns`; why it was not taken, or empty."""
        if width_ns > MOST_WIDTH_NS:
            return "wide"
        if self._raw_ns:
            passed_ns = raw_ns - self._raw_ns[-1]
            move_ns = system_ns - self._system_ns[-1] - passed_ns
            if abs(move_ns) > STEP_SHARE * max(passed_ns, LEAST_PAIR_NS):
                self._steps.append((raw_ns, abs(move_ns)))
                self._system_ns.clear()  # no interpolation across a step
                self._raw_ns.clear()
            elif passed_ns < LEAST_PAIR_NS:
                return "soon"
        self._system_ns.append(system_ns)
        self._raw_ns.append(raw_ns)
        return ""

    @property
    def newest(self) -> tuple[int, int] | None:
        """The last pair: (system, raw)."""
        return (self._system_ns[-1], self._raw_ns[-1]) if self._raw_ns else None

    def raw_at(self, system_ns: int) -> int | None:
        """The raw instant at which the clock read `system_ns`; None: before the first pair, or far beyond the last."""
        system, raw, rate = self._system_ns, self._raw_ns, self.rate()
        if rate is None or not system[0] <= system_ns <= system[-1] + EXTRAPOLATE_NS:
            return None
        if system_ns > system[-1]:
            return raw[-1] + int((system_ns - system[-1]) / (1.0 + rate))
        i = max(1, bisect_left(system, system_ns))
        share = (system_ns - system[i - 1]) / (system[i] - system[i - 1])
        return raw[i - 1] + int(share * (raw[i] - raw[i - 1]))

    def rate(self) -> float | None:
        """Rate of the clock − rate of the raw clock over the last second; None: too short a history."""
        return self._rate(self._raw_ns[-1] - RATE_NS, len(self._raw_ns) - 1) if self._raw_ns else None

    def _rate(self, from_ns: int, last: int) -> float | None:
        """Over the pairs from the raw instant `from_ns` up to number `last`."""
        first = bisect_left(self._raw_ns, from_ns, 0, last)
        over_ns = self._raw_ns[last] - self._raw_ns[first]
        if over_ns < LEAST_RATE_NS:
            return None
        return (self._system_ns[last] - self._system_ns[first] - over_ns) / over_ns

    def unexplained_ns(self) -> int:
        """Absolute distance of the clock from its former course: what sync may not know of yet."""
        if not self._raw_ns:
            return 0
        raw_ns = self._raw_ns[-1]
        while self._steps and raw_ns - self._steps[0][0] > UNEXPLAINED_NS:
            self._steps.popleft()
        steps = sum(size for _, size in self._steps)
        stray_ns = self._largest_stray()
        return steps + (stray_ns if stray_ns > NOISE_NS else 0)

    def _largest_stray(self) -> int:
        """Largest distance from the former course; in a short history the course is that of the oldest pairs."""
        raw, system = self._raw_ns, self._system_ns
        for last in range(bisect_left(raw, raw[-1] - UNEXPLAINED_NS), len(raw) - 1):
            course = self._rate(raw[last] - COURSE_NS, last)
            if course is not None:
                ahead_ns = (
                    system[i] - system[last] - passed_ns - int(passed_ns * course)
                    for i in range(last + 1, len(raw))
                    for passed_ns in (raw[i] - raw[last],)
                )
                return max(abs(stray_ns) for stray_ns in ahead_ns)
        return 0
