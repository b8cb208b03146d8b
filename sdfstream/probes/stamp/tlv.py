"""TLVs of RFC 8972 behind the base packet: constants, our own fixed arrangement, and the walk over any other.

Octets: Flags(1) Type(1) Length(2) Value(Length). Flags: U (0x80) not recognised, sent as 1, cleared by a reflector
that understood; M (0x40) malformed; I (0x20) integrity failed.

Our Session-Sender always writes the same arrangement, `EXTENSION`: Follow-Up Telemetry, Class of Service, Timestamp
Information, then (authenticated mode) HMAC, then Extra Padding up to the wanted size. A batch of such packets is
read with fixed offsets; any other arrangement is walked (`walk`), also a whole batch at a time.

Class of Service (RFC 8972 section 4.4, with the two ECN fields of draft-ietf-ippm-stamp-cos-ecn in its reserved
bits)::

    | DSCP1 (6) | DSCP2 (6) | EC2 (2) | RPD (2) | EC1 (2) | RPE (2) | reserved (12) |

DSCP1, EC1: wanted on the answer. DSCP2, EC2: as the probe arrived. RPD 0b01: DSCP1 refused. RPE 0b11: EC1 done,
0b10: refused, 0b00: the reflector knows RFC 8972 only. (stamp-suite 0.8.0 uses another layout; it is not the RFC's.)

Not implemented, so answered as not recognised: Location, Direct Measurement, Access Report, and later RFCs' types.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np

from sdfstream.probes.stamp.packet import MAC_BYTES, Mode, fields, layout_of
from sdfstream.records.units import Bools, Int32s, StampKind, UInt8s

U: Final = 0x80
M: Final = 0x40
I: Final = 0x20  # noqa: E741 - the RFC's name of the flag
HEADER_BYTES: Final = 4
MAX_TLVS: Final = 32
"""TLVs looked at per packet; what lies behind them is copied untouched."""


class Tlv(IntEnum):
    """TLV types that we understand (IANA "STAMP TLV Types")."""

    EXTRA_PADDING = 1
    TIMESTAMP_INFORMATION = 3
    CLASS_OF_SERVICE = 4
    FOLLOW_UP_TELEMETRY = 7
    HMAC = 8


class Method(IntEnum):
    """How a stamp was made (IANA "STAMP Timestamping Methods")."""

    NONE = 0
    HW_ASSIST = 1
    SW_LOCAL = 2
    CONTROL_PLANE = 3


class SyncSource(IntEnum):
    """What disciplines a clock (IANA "STAMP Synchronization Sources")."""

    NONE = 0
    NTP = 1
    PTP = 2
    SSU_BITS = 3
    GNSS = 4
    FREE_RUNNING = 5


VALUE_BYTES: Final = np.full(256, -1, dtype=np.int32)
"""Length that a type's value must have; −1: any, or not known to us."""
VALUE_BYTES[Tlv.TIMESTAMP_INFORMATION] = 4
VALUE_BYTES[Tlv.CLASS_OF_SERVICE] = 4
VALUE_BYTES[Tlv.FOLLOW_UP_TELEMETRY] = 16
VALUE_BYTES[Tlv.HMAC] = MAC_BYTES

KNOWN: Final = np.zeros(256, dtype=np.bool_)
KNOWN[[int(t) for t in Tlv]] = True

METHOD_OF_KIND: Final = np.zeros(256, dtype=np.uint8)
"""StampKind to Method: a user-space reading is the control plane's, a kernel stamp is "SW local"."""
METHOD_OF_KIND[StampKind.USER] = Method.CONTROL_PLANE
METHOD_OF_KIND[StampKind.KERNEL] = Method.SW_LOCAL
METHOD_OF_KIND[StampKind.HARDWARE] = Method.HW_ASSIST

KIND_OF_METHOD: Final = np.full(256, StampKind.USER, dtype=np.uint8)
"""Method to StampKind; what is not said counts as user space, the worst."""
KIND_OF_METHOD[Method.HW_ASSIST] = StampKind.HARDWARE
KIND_OF_METHOD[Method.SW_LOCAL] = StampKind.KERNEL

EXTENSION: Final = layout_of(
    36,
    fu_head=(">u4", 0),
    fu_seq=(">u4", 4),
    fu_at=(">u8", 8),
    fu_mode=("u1", 16),
    cos_head=(">u4", 20),
    cos=(">u4", 24),
    ti_head=(">u4", 28),
    sync_in=("u1", 32),
    method_in=("u1", 33),
    sync_out=("u1", 34),
    method_out=("u1", 35),
)
"""Follow-Up Telemetry, Class of Service and Timestamp Information, as our sender arranges them."""

ARRANGEMENT: Final = (
    (Tlv.FOLLOW_UP_TELEMETRY, 0, 20),
    (Tlv.CLASS_OF_SERVICE, 20, 8),
    (Tlv.TIMESTAMP_INFORMATION, 28, 8),
)
"""(type, octet in `EXTENSION`, octets with the header)."""

FU_HEAD: Final = Tlv.FOLLOW_UP_TELEMETRY << 16 | 16
COS_HEAD: Final = Tlv.CLASS_OF_SERVICE << 16 | 4
TI_HEAD: Final = Tlv.TIMESTAMP_INFORMATION << 16 | 4
MAC_HEAD: Final = Tlv.HMAC << 16 | MAC_BYTES
HEAD_MASK: Final = 0x00FF_FFFF
"""Type and length of a header word, without the flags."""

_HEADS: Final = layout_of(36, fu=(">u4", 0), cos=(">u4", 20), ti=(">u4", 28))
WORD: Final = layout_of(4, word=(">u4", 0))
"""A header: flags, type and length."""


def cos_word(dscp1: int, ec1: int) -> int:
    """Class of Service value as a Session-Sender sends it."""
    return dscp1 << 26 | ec1 << 14


def trailer_bytes(mode: Mode) -> int:
    """Octets between `EXTENSION` and Extra Padding: the HMAC TLV or nothing."""
    return 0 if mode.mac_at is None else HEADER_BYTES + MAC_BYTES


def least_payload_bytes(mode: Mode) -> int:
    """The smallest UDP payload of our own probes, without Extra Padding."""
    return mode.base_bytes + EXTENSION.itemsize + trailer_bytes(mode)


def payload_bytes(mode: Mode, wanted: int) -> int:
    """The UDP payload that `wanted` becomes: at least the least one, and never 1..3 octets above it (no room for a
    padding header).
    """
    least = least_payload_bytes(mode)
    return least if wanted <= least else max(wanted, least + HEADER_BYTES)


def write_template(row: UInt8s, mode: Mode, length: int, dscp1: int, ec1: int) -> None:
    """Put the TLVs of a probe of `length` octets into `row` (width,), all flags as a sender sets them."""
    extension = fields(row[None, :], EXTENSION, mode.base_bytes)
    flags = U << 24
    extension["fu_head"] = flags | FU_HEAD
    extension["cos_head"] = flags | COS_HEAD
    extension["ti_head"] = flags | TI_HEAD
    extension["cos"] = cos_word(dscp1, ec1)
    at = mode.base_bytes + EXTENSION.itemsize
    if mode.mac_at is not None:
        fields(row[None, :], WORD, at)["word"] = flags | MAC_HEAD
        at += trailer_bytes(mode)
    if at < length:
        fields(row[None, :], WORD, at)["word"] = flags | Tlv.EXTRA_PADDING << 16 | (length - at - HEADER_BYTES)


def arranged(data: UInt8s, length: Int32s, mode: Mode) -> Bools:
    """Rows of `data` whose TLVs are exactly our own arrangement, flags aside: (n,)."""
    least = least_payload_bytes(mode)
    if data.shape[1] < least + HEADER_BYTES:
        return np.zeros(len(data), dtype=np.bool_)
    heads = fields(data, _HEADS, mode.base_bytes)
    ours: Bools = (heads["fu"] & HEAD_MASK) == FU_HEAD
    ours &= (heads["cos"] & HEAD_MASK) == COS_HEAD
    ours &= (heads["ti"] & HEAD_MASK) == TI_HEAD
    if mode.mac_at is not None:
        ours &= (fields(data, WORD, least - trailer_bytes(mode))["word"] & HEAD_MASK) == MAC_HEAD
    room = length - (least + HEADER_BYTES)
    padding = (fields(data, WORD, least)["word"] & HEAD_MASK) == (Tlv.EXTRA_PADDING << 16 | np.maximum(room, 0))
    ours &= (room == -HEADER_BYTES) | (padding & (room >= 0))
    return ours


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the TLVs of m packets lie, up to `MAX_TLVS` each, in order; unused columns have `at` −1."""

    at: Int32s
    """(m, k) where the header begins."""
    type: UInt8s
    """(m, k)"""
    malformed: Bools
    """(m, k) the length is wrong for the type or reaches beyond the packet; always the last of its row."""

    def first(self, wanted: Tlv) -> Int32s:
        """(m,) where the first well-formed TLV of that type begins; −1: none."""
        hit = (self.type == wanted) & (self.at >= 0) & ~self.malformed
        column = hit.argmax(axis=1)
        rows = np.arange(len(column))
        result: Int32s = np.where(hit[rows, column], self.at[rows, column], np.int32(-1))
        return result


def walk(data: UInt8s, first_at: int, length: Int32s) -> Walk:
    """Find the TLVs of every row of `data` (m, width) from octet `first_at` up to `length` (m,).

    A walk ends at the packet's end, at a malformed TLV, at fewer than 4 octets, after `MAX_TLVS`, or at a header of
    four zero octets: plain padding of a sender that knows no TLVs (it would have set the U flag).
    """
    m = len(data)
    at = np.full((m, MAX_TLVS), -1, dtype=np.int32)
    types = np.zeros((m, MAX_TLVS), dtype=np.uint8)
    malformed = np.zeros((m, MAX_TLVS), dtype=np.bool_)
    rows = np.arange(m)
    here = np.full(m, first_at, dtype=np.int32)
    for k in range(MAX_TLVS):
        going = length[rows] - here >= HEADER_BYTES
        rows, here = rows[going], here[going]
        if not len(rows):
            break
        header = data[rows[:, None], here[:, None] + np.arange(HEADER_BYTES, dtype=np.int32)]
        going = header.any(axis=1)
        rows, here, header = rows[going], here[going], header[going]
        kind = header[:, 1]
        span: Int32s = header[:, 2].astype(np.int32) << 8 | header[:, 3]
        must = VALUE_BYTES[kind]
        bad = (span > length[rows] - here - HEADER_BYTES) | ((must >= 0) & (span != must))
        at[rows, k] = here
        types[rows, k] = kind
        malformed[rows, k] = bad
        rows, here = rows[~bad], (here + HEADER_BYTES + span)[~bad]
    used = max(1, int((at >= 0).sum(axis=1).max(initial=0)))
    return Walk(at[:, :used], types[:, :used], malformed[:, :used])


def mac_tlv_at(found: Walk) -> tuple[Int32s, Bools]:
    """Where each row's HMAC TLV begins (−1: none), and whether its position is lawful.

    It may be missing only where nothing but Extra Padding is carried; nothing but Extra Padding may follow it
    (RFC 8972 section 4.8).
    """
    present = found.at >= 0
    at = found.first(Tlv.HMAC)
    other = present & (found.type != Tlv.EXTRA_PADDING)
    behind = other & (found.at > at[:, None])
    lawful = ~behind.any(axis=1) & ~found.malformed.any(axis=1)
    return at, lawful


def gather(data: UInt8s, rows: np.ndarray[tuple[int], np.dtype[np.intp]], at: Int32s, count: int) -> UInt8s:
    """`count` octets of each of `rows` from its own octet `at`: (len(rows), count), a copy."""
    result: UInt8s = data[rows[:, None], at[:, None] + np.arange(count, dtype=np.int32)]
    return result


def flags(data: UInt8s, found: Walk) -> UInt8s:
    """(m, k) flags octets of the TLVs found; 0 where there is none."""
    rows = np.arange(len(data))[:, None]
    result: UInt8s = np.where(found.at >= 0, data[rows, found.at], np.uint8(0))
    return result
