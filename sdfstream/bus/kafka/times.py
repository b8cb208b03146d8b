"""When a Kafka record entered the bus, to the nanosecond where that can be believed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sdfstream.records.units import NS_PER_MS, NS_PER_S

MAX_LATE_NS: Final = NS_PER_S
"""An older header was written long before the message entered the bus (its producer's broker was away, and it sent the
message again and again), or by a clock that is behind. Either way the broker's stamp says better when it entered:
after an outage messages must not seem to have been there all along."""
MAX_EARLY_NS: Final = NS_PER_S
"""How far a producer's clock may run ahead of the broker's before its header is not believed."""


def entered_at_ns(header_ns: int | None, record_ms: int, by_broker: bool, before_ns: int) -> tuple[int, bool]:
    """``bus_at_ns`` of a record, and whether what its producer wrote had to be set aside.

    Parameters
    ----------
    header_ns : int or None
        What the producer wrote in the header ``bus_at_ns``.
    record_ms : int
        The record's own time stamp.
    by_broker : bool
        It is the broker's (LogAppendTime); otherwise it comes from the same clock as the header, and proves nothing.
    before_ns : int
        ``bus_at_ns`` of the record before it in the partition; time never goes back within one.
    """
    record_ns = record_ms * NS_PER_MS
    if header_ns is None:
        return max(record_ns, before_ns), False
    believed = not by_broker or -MAX_LATE_NS <= header_ns - record_ns <= MAX_EARLY_NS
    return max(header_ns if believed else record_ns, before_ns), not believed


def header_at_ns(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """What the producer wrote in the header ``bus_at_ns``; None where it is absent or no number."""
    for name, raw in headers:
        if name == "bus_at_ns":
            return int(raw) if raw and raw.isdigit() and len(raw) <= 19 else None
    return None
