"""The STAMP base packet (RFC 8762, RFC 8972 section 3) as numpy dtypes, its time stamps and error estimate.

Whole batches: a batch is an (n, width) uint8 array, one UDP payload per row; `fields` lays a big-endian
structured dtype over its first bytes without a copy. Octet offsets are those of RFC 8762 figures 2 to 6 with the
Session-Sender Identifier (SSID) of RFC 8972 in the two octets after the error estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import NS_PER_S, Int64s, UInt8s

UInt64s = npt.NDArray[np.uint64]
UInt16s = npt.NDArray[np.uint16]
Fields = npt.NDArray[np.void]
"""(n,) structured array."""

MAC_BYTES: Final = 16
"""HMAC-SHA-256 truncated to 128 bits (RFC 8762 section 4.4)."""

SYNCED: Final = 0x8000
"""S bit of the error estimate: the clock is synchronised to UTC by an external source."""
PTP: Final = 0x4000
"""Z bit of the error estimate: stamps are PTPv2 truncated (RFC 8186 section 2.3); else NTP 64-bit."""

NTP_EPOCH_S: Final = 2_208_988_800
"""Seconds from 1900-01-01 to 1970-01-01."""


def layout_of(size: int, **columns: tuple[str, int]) -> np.dtype[np.void]:
    """A structured dtype of `size` octets from name = (format, octet offset)."""
    return np.dtype(
        {
            "names": list(columns),
            "formats": [form for form, _ in columns.values()],
            "offsets": [offset for _, offset in columns.values()],
            "itemsize": size,
        }
    )


@dataclass(frozen=True, slots=True)
class Mode:
    """Unauthenticated or authenticated: where things lie in the base packet."""

    base_bytes: int
    """Length of the base packet; TLVs follow."""
    probe: np.dtype[np.void]
    """Session-Sender to Session-Reflector."""
    answer: np.dtype[np.void]
    """Session-Reflector to Session-Sender."""
    mac_at: int | None
    """Where the HMAC lies; it covers everything before it. None: no HMAC."""


OPEN: Final = Mode(
    44,
    layout_of(44, seq=(">u4", 0), t1=(">u8", 4), error=(">u2", 12), ssid=(">u2", 14)),
    layout_of(
        44,
        seq=(">u4", 0),
        t3=(">u8", 4),
        error=(">u2", 12),
        ssid=(">u2", 14),
        t2=(">u8", 16),
        sender_seq=(">u4", 24),
        sender_t1=(">u8", 28),
        sender_error=(">u2", 36),
        ttl=("u1", 40),
    ),
    None,
)
"""Unauthenticated mode, 44 octets both ways (RFC 8762 figures 2 and 5)."""

AUTHENTICATED: Final = Mode(
    112,
    layout_of(112, seq=(">u4", 0), t1=(">u8", 16), error=(">u2", 24), ssid=(">u2", 26), mac=("V16", 96)),
    layout_of(
        112,
        seq=(">u4", 0),
        t3=(">u8", 16),
        error=(">u2", 24),
        ssid=(">u2", 26),
        t2=(">u8", 32),
        sender_seq=(">u4", 48),
        sender_t1=(">u8", 64),
        sender_error=(">u2", 72),
        ttl=("u1", 80),
        mac=("V16", 96),
    ),
    96,
)
"""Authenticated mode, 112 octets both ways (RFC 8762 figures 4 and 6)."""


def mode_of(key: bytes | None) -> Mode:
    """The mode that goes with an HMAC key or none."""
    return OPEN if key is None else AUTHENTICATED


def fields(data: UInt8s, layout: np.dtype[np.void], at: int = 0) -> Fields:
    """`layout` over every row of `data` (n, width), from octet `at`: a view, (n,)."""
    view: Fields = data[:, at : at + layout.itemsize].view(layout)[:, 0]
    return view


def ntp_of(at_ns: Int64s) -> UInt64s:
    """Unix ns to NTP 64-bit: 32 bits of seconds since 1900 (mod 2³²), 32 bits of fraction, rounded up.

    Rounding up by less than 0.24 ns makes `ns_of_ntp` return exactly `at_ns`.
    """
    seconds, rest = np.divmod(at_ns, NS_PER_S)
    fraction = ((rest << 32) + (NS_PER_S - 1)) // NS_PER_S
    return (((seconds + NTP_EPOCH_S) << 32) | fraction).view(np.uint64)


def ns_of_ntp(stamp: npt.NDArray[Any]) -> Int64s:
    """NTP 64-bit to Unix ns, nearest ns.

    The era is chosen as RFC 4330 section 3 does: seconds with the top bit set lie in 1968..2036, others in 2036..2104.
    """
    stamp = stamp.astype(np.uint64, copy=False)
    seconds = (stamp >> np.uint64(32)).view(np.int64)
    fraction = (stamp & np.uint64(0xFFFF_FFFF)).view(np.int64)
    seconds = seconds - NTP_EPOCH_S + ((seconds < 0x8000_0000).astype(np.int64) << 32)
    result: Int64s = seconds * NS_PER_S + ((fraction * NS_PER_S + (1 << 31)) >> 32)
    return result


def ptp_of(at_ns: Int64s) -> UInt64s:
    """Unix ns to PTPv2 truncated: 32 bits of seconds since 1970 (mod 2³²), 32 bits of nanoseconds.

    The time scale is the host's own (usually UTC); 37 s against TAI are a clock offset like any other.
    """
    seconds, rest = np.divmod(at_ns, NS_PER_S)
    return ((seconds << 32) | rest).view(np.uint64)


def ns_of_ptp(stamp: npt.NDArray[Any]) -> Int64s:
    """PTPv2 truncated to Unix ns; valid 1970..2106."""
    stamp = stamp.astype(np.uint64, copy=False)
    seconds = (stamp >> np.uint64(32)).view(np.int64)
    result: Int64s = seconds * NS_PER_S + (stamp & np.uint64(0xFFFF_FFFF)).view(np.int64)
    return result


def stamp_of(at_ns: Int64s, error: int) -> UInt64s:
    """Unix ns in the format that the Z bit of the error estimate `error` announces."""
    return ptp_of(at_ns) if error & PTP else ntp_of(at_ns)


def ns_of(stamp: npt.NDArray[Any], error: npt.NDArray[Any]) -> Int64s:
    """Stamps to Unix ns, each row in the format its own error estimate announces."""
    ptp = (error & PTP) != 0
    if not ptp.any():
        return ns_of_ntp(stamp)
    return np.where(ptp, ns_of_ptp(stamp), ns_of_ntp(stamp))


def error_estimate(error_ns: float, *, synced: bool = False, ptp: bool = False) -> int:
    """The Error Estimate word (RFC 4656 section 4.1.2): S, Z, Scale (6 bits), Multiplier (8 bits, never 0).

    The smallest Multiplier · 2^(Scale − 32) s that is not below `error_ns`.

    >>> hex(error_estimate(1_000))  # 135 · 2^(5 − 32) s = 1 006 ns
    '0x587'
    """
    units = max(1.0, error_ns * 2**32 / NS_PER_S)
    scale = 0
    while units > 255 and scale < 63:
        units /= 2
        scale += 1
    multiplier = min(255, int(np.ceil(units)))
    return (SYNCED if synced else 0) | (PTP if ptp else 0) | scale << 8 | multiplier


def error_ns_of(error: int) -> float:
    """The bound that an Error Estimate word states, ns; infinite where the multiplier is 0 (RFC 4656 forbids it)."""
    multiplier = error & 0xFF
    return multiplier * 2.0 ** ((error >> 8 & 0x3F) - 32) * NS_PER_S if multiplier else float("inf")
