"""Round-trip time of a queue pair, and its retransmission time-out.

Smoothed as RFC 6298 section 2 has it (gains 1/8 and 1/4). The floors fit a lab, not the Internet: round trips last from
one pass of the data plane (4 ms) to a few full queues (40 ms each).
"""

from __future__ import annotations

from typing import Final

from sdfstream.records.units import NS_PER_MS

_TIME_OUT_NS: Final = (30 * NS_PER_MS, 250 * NS_PER_MS)
"""Least and most: seven passes of the data plane in C; six full queues in a row."""
_MARGIN_NS: Final = 10 * NS_PER_MS
_FIRST_TIME_OUT_NS: Final = 60 * NS_PER_MS
_BACKED_OFF_NS: Final = 50 * NS_PER_MS
"""Backing off goes no further than this (or the time-out itself): a path that heals is noticed at once."""
_MOST_TIMES: Final = 8


class RoundTrip:
    """Smoothed round-trip time and retransmission time-out of one queue pair."""

    def __init__(self) -> None:
        self.smoothed_ns = 0
        """0: not known yet."""
        self._spread_ns = 0
        self._times = 0

    @property
    def time_out_ns(self) -> int:
        """Retransmission time-out now, backed off after time-outs in a row."""
        if not self.smoothed_ns:
            return _FIRST_TIME_OUT_NS
        plain = self.smoothed_ns + max(4 * self._spread_ns, _MARGIN_NS)
        plain = min(max(plain, _TIME_OUT_NS[0]), _TIME_OUT_NS[1])
        return min(plain << self._times, max(plain, _BACKED_OFF_NS))

    def measure(self, rtt_ns: int) -> None:
        """One round trip lasted `rtt_ns`."""
        if not self.smoothed_ns:
            self.smoothed_ns, self._spread_ns = max(1, rtt_ns), rtt_ns // 2
            return
        self._spread_ns += (abs(rtt_ns - self.smoothed_ns) - self._spread_ns) // 4
        self.smoothed_ns = max(1, self.smoothed_ns + (rtt_ns - self.smoothed_ns) // 8)

    def on_time_out(self) -> int:
        """A time-out has passed; how many in a row."""
        self._times = min(self._times + 1, _MOST_TIMES)
        return self._times

    def on_progress(self) -> None:
        """Something was acknowledged, or another path begins."""
        self._times = 0
