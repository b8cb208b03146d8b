"""The STAMP base packet (RFC 8762, RFC 8972 section 3) as numpy dtypes, its time stamps, error estimate and HMAC.

Whole batches: a batch is an (n, width) uint8 array, one UDP payload per row; `fields` lays a big-endian
structured dtype over its first bytes without a copy. Octet offsets are those of RFC 8762 figures 2 to 6 with the
Session-Sender Identifier (SSID) of RFC 8972 in the two octets after the error estimate. `BatchVerdict`
lists why an engine refuses a datagram.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import NS_PER_S, Bools, Int32s, Int64s, UInt8s
from sdfstream.stats import Counters

UInt64s = npt.NDArray[np.uint64]
UInt16s = npt.NDArray[np.uint16]
Fields = npt.NDArray[np.void]
"""(n,) structured array."""

MAC_BYTES: Final = 16
"""HMAC-SHA-256 truncated to 128 bits (RFC 8762 section 4.4)."""
_SEQ_BYTES: Final = 4
_BLOCK_BYTES: Final = 64
"""Of SHA-256."""

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
    mark: np.dtype[np.void]
    """What tells an answer from a probe: t2, and a word of which an answer leaves the octets in `zeros` zero."""
    zeros: np.uint64


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
    layout_of(44, t2=("u8", 16), word=("u8", 36)),
    np.frombuffer(b"\0\0\xff\xff\0\xff\xff\xff", dtype=np.uint64)[0],
)
"""Unauthenticated mode, 44 octets in both directions (RFC 8762 figures 2 and 5)."""

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
    layout_of(112, t2=("u8", 32), word=("u8", 72)),
    np.frombuffer(b"\0\0\xff\xff\xff\xff\xff\xff", dtype=np.uint64)[0],
)
"""Authenticated mode, 112 octets in both directions (RFC 8762 figures 4 and 6)."""


def mode_of(key: bytes | None) -> Mode:
    """The mode that goes with an HMAC key or none."""
    return OPEN if key is None else AUTHENTICATED


def fields(data: UInt8s, layout: np.dtype[np.void], at: int = 0) -> Fields:
    """`layout` over every row of `data` (n, width), from octet `at`: a view, (n,)."""
    view: Fields = data[:, at : at + layout.itemsize].view(layout)[:, 0]
    return view


def are_answers(data: UInt8s, mode: Mode) -> Bools:
    """(n,) which packets of `data` (n, width) are answers: t2 is there, and zeros are where only an answer has them.

    A probe has zeros throughout (RFC 8762 section 4.2.1) or, from a TWAMP-Light sender, random padding (section 4.6).
    """
    head = fields(data, mode.mark)
    result: Bools = (head["t2"] != 0) & ((head["word"] & mode.zeros) == 0)
    return result


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


class Mac:
    """HMAC-SHA-256 truncated to 128 bits, of whole batches (RFC 8762 section 4.4, RFC 8972 section 4.8).

    The only per-packet Python of the engines, about 1 µs per HMAC: the two halves of RFC 2104 that depend on the key
    alone are hashed once and copied for every packet.
    """

    def __init__(self, key: bytes) -> None:
        block = (hashlib.sha256(key).digest() if len(key) > _BLOCK_BYTES else key).ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha256(bytes(b ^ 0x36 for b in block))
        self._outer = hashlib.sha256(bytes(b ^ 0x5C for b in block))

    def _digest(self, message: bytes) -> bytes:
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer.digest()[:MAC_BYTES]

    def of_base(self, data: UInt8s, mode: Mode) -> UInt8s:
        """HMAC of the base packet, all octets before its HMAC field, of every row of `data` (n, width): (n, 16)."""
        size = mode.base_bytes - MAC_BYTES
        whole = data[:, :size].tobytes()
        made = b"".join([self._digest(whole[i : i + size]) for i in range(0, len(whole), size)])
        return np.frombuffer(made, dtype=np.uint8).reshape(len(data), MAC_BYTES)

    def of_tlvs(self, data: UInt8s, mode: Mode, mac_tlv_at: Int32s) -> UInt8s:
        """HMAC of the sequence number (octets 0..3) and all TLVs before the HMAC TLV of every row: (n, 16).

        Parameters
        ----------
        data : (n, width) uint8
        mode : Mode
        mac_tlv_at : (n,) int
            Where the header of the row's HMAC TLV begins.
        """
        size = int(mac_tlv_at.max(initial=mode.base_bytes))
        whole = data[:, :size].tobytes()
        ends = mac_tlv_at.tolist()
        made = b"".join(
            [
                self._digest(whole[i : i + _SEQ_BYTES] + whole[i + mode.base_bytes : i + end])
                for i, end in zip(range(0, len(whole), size), ends, strict=True)
            ]
        )
        return np.frombuffer(made, dtype=np.uint8).reshape(len(data), MAC_BYTES)


def macs_equal(a: UInt8s, b: UInt8s) -> Bools:
    """Row by row equality of two (n, 16) arrays; takes the same time wherever they differ."""
    result: Bools = np.bitwise_or.reduce(a ^ b, axis=1) == 0
    return result


class BatchVerdict:
    """Which rows of a batch are still good. Every refusal is counted once, under its first reason.

    Counted as ``<stage>.refused.<reason>`` with stage ``sender`` or ``reflector``; the constants are the reasons.
    """

    __slots__ = ("_counters", "good")

    SHORT: Final = "short"
    """Fewer octets than the base packet of the mode. RFC 8762 section 4.6 would answer such a TWAMP-Light probe with a
    larger packet, which would amplify."""
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
    STRANGER: Final = "stranger"
    """Neither configuration, plan, job nor settings name its sender."""
    REFLECTOR_PORT: Final = "reflector-port"
    """Sent from a port where a reflector listens: an answer would be answered."""
    ANSWER: Final = "answer"
    """An answer itself: it carries t2, where a probe has zeros."""
    OWN_ADDRESS: Final = "own-address"
    """From an address of this host."""
    NO_HOST: Final = "no-host"
    """From an address that is not one host's: multicast, broadcast, or loopback from outside."""
    SOURCE_RATE: Final = "source-rate"
    """Over the packets per second of its sender."""
    STRANGER_RATE: Final = "stranger-rate"
    """Over the packets per second of all strangers."""

    def __init__(self, rows: int, counters: Counters) -> None:
        self.good: Bools = np.ones(rows, dtype=np.bool_)
        self._counters = counters

    def refuse(self, bad: Bools, reason: str) -> None:
        """Refuse the rows where `bad`, unless refused already."""
        if np.count_nonzero(bad):
            bad = bad & self.good
            self._counters.add("refused", reason, int(np.count_nonzero(bad)))
            self.good &= ~bad

    def refuse_rows(self, rows: Int64s, reason: str) -> None:
        """Refuse the good rows with these numbers."""
        if len(rows):
            self._counters.add("refused", reason, len(rows))
            self.good[rows] = False

    @property
    def all_good(self) -> bool:
        """Whether no row was refused."""
        return bool(self.good.all())
