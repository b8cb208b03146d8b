"""Spacing of packets: a token bucket at the window's rate, or at a limit where one is in force."""

from __future__ import annotations

from typing import Final

from sdfstream.records.units import NS_PER_S

_OVERHEAD_BYTES: Final = 14 + 20 + 8
"""Ethernet, IPv4 and UDP headers: rates are counted as a link's rate is in the lab, Ethernet header included."""
_BURST_NS: Final = 8_000_000
"""Credit may stand for this long: two passes of the data plane in C, so that a late pass loses no throughput."""
_FLOOR_BYTES: Final = 3_100
"""Two full packets: with less, a slow limit could never send."""


class Pacer:
    """Credit in octets; a packet may leave while it is positive."""

    def __init__(self, now_ns: int) -> None:
        self._credit = float(_FLOOR_BYTES)
        self._at_ns = now_ns

    def refill(self, rate_bps: float, now_ns: int) -> None:
        """Credit for the time since the last call."""
        gained = (now_ns - self._at_ns) * rate_bps / 8 / NS_PER_S
        most = max(_FLOOR_BYTES, rate_bps * _BURST_NS / 8 / NS_PER_S)
        self._credit = min(self._credit + gained, most)
        self._at_ns = now_ns

    @property
    def may_send(self) -> bool:
        """Whether a packet may leave now."""
        return self._credit > 0.0

    def spend(self, datagram_bytes: int) -> None:
        """A datagram with this many octets of UDP payload has left."""
        self._credit -= datagram_bytes + _OVERHEAD_BYTES
