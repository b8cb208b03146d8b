"""Bus time of a Kafka record, to the nanosecond where its header is plausible."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sdfstream.records.units import NS_PER_MS, NS_PER_S

MAX_LATE_NS: Final = NS_PER_S
"""A header older than this was written long before the message entered the bus (during an outage of the brokers the
producer repeats it), or by a clock that is behind. The broker's stamp is then the better one: after an outage messages
must not seem to have been on the bus all along."""
MAX_EARLY_NS: Final = NS_PER_S
"""A header further ahead of the broker's stamp is set aside."""


def entered_at_ns(header_ns: int | None, record_ms: int, by_broker: bool, before_ns: int) -> tuple[int, bool]:
    """``bus_at_ns`` of a record, and whether its producer's header was set aside.

    Parameters
    ----------
    header_ns : int or None
        The producer's header ``bus_at_ns``.
    record_ms : int
        The record's own time stamp.
    by_broker : bool
        Whether that stamp is the broker's (LogAppendTime). Otherwise it has the same clock as the header, and is no
        check of it.
    before_ns : int
        ``bus_at_ns`` of the record before it in the partition; time never goes back within one.
    """
    record_ns = record_ms * NS_PER_MS
    if header_ns is None:
        return max(record_ns, before_ns), False
    plausible = not by_broker or -MAX_LATE_NS <= header_ns - record_ns <= MAX_EARLY_NS
    return max(header_ns if plausible else record_ns, before_ns), not plausible


def header_at_ns(headers: Iterable[tuple[str, bytes | None]]) -> int | None:
    """The header ``bus_at_ns``, ns since the Unix epoch; None where it is absent or no number."""
    for name, raw in headers:
        if name == "bus_at_ns":
            return int(raw) if raw and raw.isdigit() and len(raw) <= 19 else None
    return None
