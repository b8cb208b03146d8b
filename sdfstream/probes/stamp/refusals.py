"""Why a datagram or a stamp was refused: the fixed words under which engines count.

Counted as ``<stage>.refused.<reason>`` with stage ``sender`` or ``reflector``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.records.units import Bools
from sdfstream.stats import Counters

SHORT: Final = "short"
"""Fewer octets than the base packet of the mode. RFC 8762 section 4.6 would answer such a TWAMP-Light probe with a
larger packet; never sending more than came in wins over that."""
CUT: Final = "oversized"
"""Longer than the receive buffer, so that the end is missing."""
HMAC: Final = "hmac"
"""The base packet's HMAC is wrong; dropped silently."""
UNKNOWN_SESSION: Final = "unknown-session"
"""No session of ours has this socket and SSID."""
WRONG_REFLECTOR: Final = "wrong-reflector"
"""The answer comes from another address or port than the probe went to."""
UNKNOWN_EXCHANGE: Final = "unknown-exchange"
"""No probe with this sequence number was sent lately."""
LATE: Final = "late"
"""The probe had timed out and counts as lost."""
ECHO: Final = "echo"
"""The answer does not repeat the time stamp that the probe carried: another run's or a made-up answer."""
DUPLICATE: Final = "duplicate"
"""The exchange was answered before."""
RATE: Final = "rate"
"""Over the reflector's packets per second."""


class Verdict:
    """Which rows of a batch are still good; every refusal is counted once, under its first reason."""

    __slots__ = ("_counters", "good")

    def __init__(self, rows: int, counters: Counters) -> None:
        self.good: Bools = np.ones(rows, dtype=np.bool_)
        self._counters = counters

    def refuse(self, bad: Bools, reason: str) -> None:
        """Refuse the rows where `bad`, unless refused already."""
        if np.count_nonzero(bad):
            bad = bad & self.good
            self._counters.add("refused", reason, int(np.count_nonzero(bad)))
            self.good &= ~bad
