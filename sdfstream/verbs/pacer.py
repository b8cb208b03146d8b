"""A rate limit in software: how long a program waits before it posts, so that a limit holds on average."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sdfstream.records.units import NS_PER_S

_BURST_NS: Final = 2_000_000
"""Credit for a pause stands for at most this long: more would be a burst at line rate after every idle moment."""


@dataclass(slots=True)
class PostPacer:
    """Posts as a leaky bucket at `rate_bps`; None: no limit.

    Each post occupies the limited line for its octets' time; the next may begin when that is over. The error of the
    rate over a time T is at most one post and `_BURST_NS`, whatever the caller's lateness.
    """

    rate_bps: int | None = None
    free_ns: int = 0
    """Steady clock: when all that was posted has gone by the limit."""

    def reserve(self, octets: int, now_ns: int) -> int:
        """Take the time of a post of this many octets; how long to wait before it, ns.

        >>> pacer = PostPacer(rate_bps=8_000)
        >>> [pacer.reserve(1_000, 10**9) for _ in range(3)]
        [0, 998000000, 1998000000]
        """
        if self.rate_bps is None:
            self.free_ns = now_ns
            return 0
        begins_ns = max(self.free_ns, now_ns - _BURST_NS)
        self.free_ns = begins_ns - (-octets * 8 * NS_PER_S // self.rate_bps)  # rounded up
        return max(0, begins_ns - now_ns)
