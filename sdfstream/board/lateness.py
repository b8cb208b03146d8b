"""How late agents' messages come, and of when a picture made of them speaks.

A liveness statement names the instant at which its agent made it; what it took longer than the fastest one is how late
that agent's messages come (`records.bustime`).
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low
from typing import Final

from sdfstream.board.humanize import clock_time, duration
from sdfstream.records.bustime import BusTime, as_of_ns
from sdfstream.records.units import NS_PER_S

OLD_NS: Final = 2 * NS_PER_S
"""What is known of an instant so long ago is told with its age, and in the past tense."""
_MOST_HOSTS: Final = 65_536


class HostLateness:
    """Lateness of every host's messages, by its last liveness statement."""

    def __init__(self) -> None:
        self._bustime = BusTime()
        self._late_ns: dict[str, int] = {}

    def take(self, host: str, seen_at_ns: object, bus_at_ns: int) -> None:
        """Take that a host's agent said at `seen_at_ns` of its own clock what entered the bus at `bus_at_ns`."""
        if not isinstance(seen_at_ns, int) or (host not in self._late_ns and len(self._late_ns) >= _MOST_HOSTS):
            return
        self._bustime.note(host, seen_at_ns, bus_at_ns)
        self._late_ns[host] = bus_at_ns - as_of_ns(self._bustime.of_one(host, seen_at_ns, bus_at_ns), bus_at_ns)

    def of(self, host: str) -> int:
        """ns; 0 for a host whose messages are on time, or of which no statement came."""
        return self._late_ns.get(host, 0)

    def of_half(self, hosts: Iterable[str]) -> int:
        """What half of these hosts' messages are late at least, ns."""
        return median_low([self.of(host) for host in hosts] or [0])


def as_of(known_ns: int | None, now_ns: int) -> str:
    """Of when something speaks, where that is a while ago; else nothing.

    >>> as_of(1_800_000_000_000_000_000, 1_800_000_003_200_000_000)
    'as of 08:00:00 UTC, 3.2 s ago'
    >>> as_of(1_800_000_000_000_000_000, 1_800_000_000_500_000_000), as_of(None, 5)
    ('', '')
    """
    if known_ns is None or now_ns - known_ns <= OLD_NS:
        return ""
    return f"as of {clock_time(known_ns)}, {duration(now_ns - known_ns)} ago"
