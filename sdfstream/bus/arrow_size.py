"""What an Arrow IPC stream will be once it is decoded: rows and bytes, read from its metadata before that.

A compressed buffer says how long it will be in its first eight bytes, and Arrow allocates that much on its word: 29 KB
of Zstandard can be 8 million rows. So the sum of these lengths, and every record batch's number of rows, are read here
from the FlatBuffers of the encapsulated messages, and a stream that asks for more than its bound is refused unread. A
stream that is not compressed cannot grow: its buffers lie within its bytes.

References
----------
Apache Arrow, "Columnar format": encapsulated message format, ``Message.fbs`` (tables Message, RecordBatch,
DictionaryBatch, BodyCompression); FlatBuffers, "Internals" (tables, vtables, vectors).
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from struct import Struct, error, unpack_from
from typing import Final, NamedTuple

from sdfstream.errors import FormatError

_HEAD: Final = Struct("<Ii").unpack_from
_U8: Final = Struct("<B").unpack_from
_U16: Final = Struct("<H").unpack_from
_I32: Final = Struct("<i").unpack_from
_U32: Final = Struct("<I").unpack_from
_I64: Final = Struct("<q").unpack_from
_CONTINUES: Final = 0xFFFFFFFF
_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
# positions of a field in a vtable: 4 + 2 × its number in Message.fbs
_HEADER_TYPE, _HEADER, _BODY_LENGTH = 6, 8, 10
_LENGTH, _BUFFERS, _COMPRESSION = 4, 8, 10
_DATA: Final = 6
_NOT_COMPRESSED: Final = -1
MOST_ROWS: Final = 1 << 19
MOST_GROWN_BYTES: Final = 64 << 20
MOST_GROWTH: Final = 32
"""Rows of healthy topics shrink to a quarter, counters that stand still to a twentieth."""
_SMALL_BYTES: Final = 256 << 10
MOST_MESSAGES: Final = 256
"""Messages of a stream: schema, a dictionary per name column, one record batch."""


class MessageSize(NamedTuple):
    """What one message of a stream takes once it is decoded."""

    is_batch: bool
    """A record batch, not the schema or a dictionary."""
    rows: int
    grown_bytes: int
    """As `DecodedSize`."""
    stored_bytes: int
    """Of its body, as it stands there."""
    at: int
    """Where it begins in the stream."""


class DecodedSize(NamedTuple):
    """What a stream takes once it is decoded."""

    rows: int
    """Of the largest record batch or dictionary."""
    grown_bytes: int
    """Bytes of buffers that are compressed, decompressed; 0: nothing is compressed."""


def check_size(raw: bytes) -> None:
    """Refuse a stream whose rows or decompressed bytes are beyond what a message may hold, before it is decoded.

    Decompressed, it may take 256 KiB and 32 times its own size, and 64 MiB at most: a reader that takes a thousand
    messages of 16 MiB at once never holds more than three quarters of a GiB for them.

    Raises
    ------
    FormatError
        ``arrow-size``, or as `decoded_size`.
    """
    rows, grown = decoded_size(raw)
    most = min(MOST_GROWN_BYTES, _SMALL_BYTES + MOST_GROWTH * len(raw))
    if grown > most:
        raise FormatError("arrow-size", f"{len(raw)} bytes would be {grown} decompressed, at most {most}")
    check_rows(rows)


def check_rows(rows: int) -> None:
    """Refuse more rows than a message may hold; FormatError ``arrow-size``."""
    if rows > MOST_ROWS:
        raise FormatError("arrow-size", f"{rows} rows, at most {MOST_ROWS}")


def decoded_size(raw: bytes) -> DecodedSize:
    """Rows and bytes of the stream `raw`; what stands behind its end is not looked at.

    Raises
    ------
    FormatError
        ``arrow-corrupt``: not an IPC stream of today's framing, or lengths that leave it.
    """
    rows = grown = 0
    for number, one in enumerate(messages(raw)):
        if number == MOST_MESSAGES:
            raise FormatError("arrow-batches", f"more than {MOST_MESSAGES} messages in one stream")
        rows, grown = max(rows, one.rows), grown + one.grown_bytes
    return DecodedSize(rows, grown)


def messages(raw: bytes | mmap) -> Iterator[MessageSize]:
    """Each encapsulated message of the stream `raw`; errors as `decoded_size`."""
    at = 0
    try:
        while at < len(raw):  # a stream may end without an end mark
            mark, size = _HEAD(raw, at)
            if mark == 0:  # an end mark of the old framing
                return
            if mark != _CONTINUES or size < 0:
                raise FormatError("arrow-corrupt", "no encapsulated message")
            if size == 0:
                return
            start = at
            at += 8
            table = at + _U32(raw, at)[0]
            kind = _U8(raw, _field(raw, table, _HEADER_TYPE))[0]
            body = at + size
            length_at = _field(raw, table, _BODY_LENGTH)
            at = body + (_I64(raw, length_at)[0] if length_at else 0)
            if not body <= at <= len(raw):
                raise FormatError("arrow-corrupt", "a body beyond the message")
            yield MessageSize(*_size_of(raw, table, kind, body, at), stored_bytes=at - body, at=start)
    except error as short:
        raise FormatError("arrow-corrupt", f"{short}") from short


def _size_of(raw: bytes | mmap, table: int, kind: int, body: int, end: int) -> tuple[bool, int, int]:
    """The first three of `MessageSize`."""
    if kind == _SCHEMA:
        return False, 0, 0
    batch = _table(raw, table, _HEADER)
    if kind == _DICTIONARY:
        batch = _table(raw, batch, _DATA)
    length_at = _field(raw, batch, _LENGTH)
    rows = _I64(raw, length_at)[0] if length_at else 0
    grown = _grown(raw, batch, body, end) if _field(raw, batch, _COMPRESSION) else 0
    return kind == _BATCH, rows, grown


def _field(raw: bytes | mmap, table: int, slot: int) -> int:
    """Where the field at `slot` of a vtable lies; 0: absent, thus its default."""
    vtable = table - _I32(raw, table)[0]
    if vtable < 0 or slot >= _U16(raw, vtable)[0]:
        return 0
    offset: int = _U16(raw, vtable + slot)[0]
    return table + offset if offset else 0


def _table(raw: bytes | mmap, table: int, slot: int) -> int:
    """The table that a field points to."""
    at = _field(raw, table, slot)
    if not at:
        raise FormatError("arrow-corrupt", "a message without a header")
    return at + int(_U32(raw, at)[0])


def _grown(raw: bytes | mmap, batch: int, body: int, end: int) -> int:
    """Bytes of a compressed batch's buffers, by their own first eight bytes."""
    at = _field(raw, batch, _BUFFERS)
    if not at:
        return 0
    vector = at + int(_U32(raw, at)[0])
    (count,) = _U32(raw, vector)
    if count > len(raw) // 16:
        raise FormatError("arrow-corrupt", "more buffers than bytes")
    fields = unpack_from(f"<{2 * count}q", raw, vector + 4)
    total = 0
    for offset, length in zip(fields[::2], fields[1::2], strict=True):
        if length == 0:
            continue
        if offset < 0 or length < 8 or body + offset + length > end:
            raise FormatError("arrow-corrupt", "a buffer beyond its body")
        size = _I64(raw, body + offset)[0]
        if size < _NOT_COMPRESSED:
            raise FormatError("arrow-corrupt", "a buffer of negative length")
        total += length - 8 if size == _NOT_COMPRESSED else size
    return total
