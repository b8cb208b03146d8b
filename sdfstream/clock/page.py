"""The clock page: one clock of this machine on the shared timeline, in 512 bytes that any process may map.

Layout, little-endian, version 1 (``docs/clock.md`` has the same table for C)::

    offset  type       field
         0  8 bytes    magic "sdfclock"
         8  u64        sequence: odd while the page is being written
        16  u32        version, 1
        20  u32        size of the page in bytes, 512
        24  u32        CRC-32 (zlib) of bytes 28..511
        28  u32        flags; bit 0: CLOCK_REALTIME is this clock
        32  i64        at_ns: reading of this clock that the estimate is for
        40  i64        raw_ns: CLOCK_MONOTONIC_RAW at that instant
        48  i64        offset_ns: this clock − reference
        56  i64        err_ns: |true error| at that instant is at most this, at 99.9 %
        64  f64        skew_ppb: rate of this clock − rate of the reference; positive: runs fast
        72  f64        raw_ppb: rate of this clock − rate of CLOCK_MONOTONIC_RAW
        80  f64        grow_ppb: err_ns grows so fast up to fresh_ns after the instant,
        88  f64        hold_ppb: and so fast after that
        96  i64        fresh_ns
       104  i64        void_ns: so long after the instant the page is void
       112  i64        written_raw_ns: CLOCK_MONOTONIC_RAW when it was written
       120  u32        status: 1 synced, 2 holdover, 3 unsynced, 4 faulty, 5 stepped
       124  u32        n: samples behind the estimate
       128  16 bytes   the machine's boot id (the UUID in /proc/sys/kernel/random/boot_id)
       144  16 bytes   the writer's run
       160  u16, u16   lengths in bytes of the two names; 4 bytes 0
       168  128 bytes  clock id, UTF-8, padded with 0
       296  128 bytes  reference clock's id; empty: a mean of several
       424  88 bytes   0, reserved

The writer makes the sequence odd, writes bytes 24..511, makes it even. A reader takes the sequence, the page, and the
sequence again; two equal even numbers and a matching CRC make a whole page (the CRC is for machines that reorder
stores, and for a writer that died in between). This module knows bytes only: standard library, no clock, no file.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sdfstream.errors import FormatError

MAGIC: Final = b"sdfclock"
VERSION: Final = 1
SIZE: Final = 512
NAME_BYTES: Final = 128
SEQUENCE_AT: Final = 8
SEQUENCE_WORD: Final = SEQUENCE_AT // 8
"""Index of the sequence in the page read as 64-bit words."""
REALTIME: Final = 1
STATUSES: Final = ("", "synced", "holdover", "unsynced", "faulty", "stepped")
"""By code; 0 is never written."""

_HEAD: Final = struct.Struct("<8sQIII")
_BODY: Final = struct.Struct("<I4q4d3qII16s16sHH4x128s128s88s")
_CRC_AT: Final = 24
_BODY_AT: Final = 28
_SEQUENCE: Final = struct.Struct("<Q")
_WORD: Final = 1 << 63
assert _HEAD.size == _BODY_AT and _BODY_AT + _BODY.size == SIZE


@dataclass(frozen=True, slots=True)
class Page:
    """The fields of a page. Instants and durations in ns, rates in ppb; signs as in `records.units`."""

    clock: str
    reference: str
    realtime: bool
    """Whether CLOCK_REALTIME is this clock; if not, its reading is computed from CLOCK_MONOTONIC_RAW."""
    at_ns: int
    raw_ns: int
    offset_ns: int
    err_ns: int
    skew_ppb: float
    raw_ppb: float
    grow_ppb: float
    hold_ppb: float
    fresh_ns: int
    void_ns: int
    written_raw_ns: int
    status: str
    n: int
    boot: bytes
    """The machine's boot id, 16 bytes."""
    writer: bytes
    """The writer's run, 16 bytes."""


def encode(page: Page, sequence: int) -> bytes:
    """The whole page.

    Raises
    ------
    FormatError
        ``name``: longer than 128 bytes, or an empty clock id; ``field``: a number that the page cannot hold.
    """
    names = page.clock.encode(), page.reference.encode()
    if not names[0] or any(len(name) > NAME_BYTES or b"\0" in name for name in names):
        raise FormatError("name", f"{page.clock!r}, {page.reference!r}")
    if reason := _wrong(page):
        raise FormatError("field", reason)
    try:
        body = _BODY.pack(
            REALTIME if page.realtime else 0,
            page.at_ns, page.raw_ns, page.offset_ns, page.err_ns,
            page.skew_ppb, page.raw_ppb, page.grow_ppb, page.hold_ppb,
            page.fresh_ns, page.void_ns, page.written_raw_ns,
            STATUSES.index(page.status), page.n, page.boot, page.writer, len(names[0]), len(names[1]), *names, b"",
        )  # fmt: skip
    except struct.error as error:
        raise FormatError("field", str(error)) from error
    return _HEAD.pack(MAGIC, sequence, VERSION, SIZE, zlib.crc32(body)) + body


def updates(whole: bytes, sequence: int) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) to be written one after the other over a page whose sequence is `sequence` (even).

    `whole` is the new page as `encode` made it; the sequence in it is ignored. A writer that dies in between
    leaves a page that readers refuse as torn, not one that mixes old and new.
    """
    yield SEQUENCE_AT, _SEQUENCE.pack(sequence + 1)
    yield _CRC_AT, whole[_CRC_AT:]
    yield SEQUENCE_AT, _SEQUENCE.pack(sequence + 2)


def decode(raw: bytes) -> Page:
    """The page in the bytes `raw`.

    Raises
    ------
    FormatError
        ``truncated``, ``magic``, ``version``, ``torn`` (being written, or its writer died), ``checksum``, ``name``,
        ``field``.
    """
    if len(raw) < SIZE:
        raise FormatError("truncated", f"{len(raw)} of {SIZE} bytes")
    magic, sequence, version, size, crc = _HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise FormatError("magic", repr(magic))
    if version != VERSION or size != SIZE:
        raise FormatError("version", f"version {version}, {size} bytes; known: version {VERSION}, {SIZE} bytes")
    if sequence & 1:
        raise FormatError("torn", f"sequence {sequence}")
    if zlib.crc32(raw[_BODY_AT:SIZE]) != crc:
        raise FormatError("checksum", f"sequence {sequence}")
    (
        flags, at, at_raw, offset, err, skew, raw_ppb, grow, hold, fresh, void, written,
        status, n, boot, writer, clock_bytes, reference_bytes, clock, reference, _,
    ) = _BODY.unpack_from(raw, _BODY_AT)  # fmt: skip
    if not 0 < status < len(STATUSES):
        raise FormatError("field", f"status {status}")
    page = Page(
        _name(clock, clock_bytes), _name(reference, reference_bytes), bool(flags & REALTIME),
        at, at_raw, offset, err, skew, raw_ppb, grow, hold, fresh, void, written, STATUSES[status], n, boot, writer,
    )  # fmt: skip
    if not page.clock:
        raise FormatError("name", "no clock id")
    if reason := _wrong(page):
        raise FormatError("field", reason)
    return page


def _name(padded: bytes, length: int) -> str:
    if length > NAME_BYTES or any(padded[length:]) or b"\0" in padded[:length]:
        raise FormatError("name", repr(padded))
    try:
        return padded[:length].decode()
    except UnicodeDecodeError as error:
        raise FormatError("name", repr(padded)) from error


def _wrong(page: Page) -> str:
    """Which of the numbers is out of range; empty: none."""
    rates = page.skew_ppb, page.raw_ppb, page.grow_ppb, page.hold_ppb
    if not all(math.isfinite(rate) and abs(rate) < 1e9 for rate in rates):
        return f"rates {rates}"
    if page.grow_ppb < 0 or page.hold_ppb < 0 or page.err_ns < 0:
        return f"err_ns {page.err_ns} growing by {page.grow_ppb}, {page.hold_ppb}"
    if not 0 < page.fresh_ns <= page.void_ns:
        return f"fresh_ns {page.fresh_ns}, void_ns {page.void_ns}"
    if len(page.boot) != 16 or len(page.writer) != 16:
        return "ids are 16 bytes"
    return "" if page.status in STATUSES[1:] else f"status {page.status!r}"
