"""The bytes of a spill: what an agent keeps on disk while the bus is away.

A **segment** is a file that is only appended to::

    "SDFSPIL1" · record · record · …
    record:  uint32 payload length · uint32 CRC-32 of the payload · payload              (little endian)
    payload: uint16 head length · head · body, compressed by Zstandard

The head is JSON ``[topic, key, boot_id, batch_seq, rows, bulk, body length before compression]``; the body is one Arrow
IPC stream with one record batch, or the JSON of an event. An output keeps the boot id and the number of when
it was made, so that one that is sent twice is known as a repeat, also when another run of the agent sends it.

A process that is killed may leave a record half written: `scan` finds where the last whole one ends. What a dying
machine leaves (power, kernel) may be torn anywhere; the same rule then keeps what stands before the first tear.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from sdfstream import strict_json
from sdfstream.bus.arrow_size import check_size
from sdfstream.errors import FormatError
from sdfstream.records.message import Body, Event, Output

MAGIC: Final = b"SDFSPIL1"
_RECORD: Final = struct.Struct("<II")
_HEAD: Final = struct.Struct("<H")
_CODEC: Final = pa.Codec("zstd", compression_level=1)
_WRITE: Final = pa.ipc.IpcWriteOptions(use_threads=False)
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)
_STUMBLES: Final = (
    FormatError, ValueError, TypeError, KeyError, OSError, struct.error, pa.ArrowException, StopIteration
)  # fmt: skip
MAX_BODY_BYTES: Final = 64 << 20
"""More is no output of an agent."""


@dataclass(frozen=True, slots=True)
class RecordPosition:
    """A record's position in its segment, and what it contains."""

    offset: int
    length: int
    """Of the whole record."""
    topic: str
    rows: int


def rows_of(body: Body) -> int:
    """Rows of a body; an event counts as one."""
    return int(body.num_rows) if isinstance(body, pa.RecordBatch) else 1


def encode(output: Output) -> bytes:
    """The record of `output`.

    Raises
    ------
    ValueError, TypeError
        An event that is not plain JSON, or names too long for anyone: our own mistake.
    """
    bulk = isinstance(output.body, pa.RecordBatch)
    body = _arrow(output.body) if bulk else _json(output.body)
    head = json.dumps(
        [output.topic, output.key, output.boot_id, output.batch_seq, rows_of(output.body), bulk, len(body)],
        separators=(",", ":"),
    ).encode()
    if len(head) > 0xFFFF or len(body) > MAX_BODY_BYTES:
        raise ValueError(f"{output.topic}: a head of {len(head)} bytes and a body of {len(body)} are too large")
    payload = _HEAD.pack(len(head)) + head + _CODEC.compress(body, asbytes=True)
    record: bytes = _RECORD.pack(len(payload), zlib.crc32(payload)) + payload
    return record


def decode(record: bytes) -> Output:
    """The output of a whole record.

    Raises
    ------
    FormatError
        ``spill-record``: it is not what was written.
    """
    payload = _payload(record, 0)
    if payload is None or _RECORD.size + len(payload) != len(record):
        raise FormatError("spill-record", "length or CRC")
    try:
        topic, key, boot_id, batch_seq, _, bulk, size = _head(payload)
        if not 0 <= size <= MAX_BODY_BYTES:
            raise ValueError(f"a body of {size} bytes")
        (head_bytes,) = _HEAD.unpack_from(payload)
        body = _CODEC.decompress(payload[_HEAD.size + head_bytes :], decompressed_size=size, asbytes=True)
        return Output(topic, key, _batch(body) if bulk else _event(body), boot_id, batch_seq)
    except _STUMBLES as error:
        raise FormatError("spill-record", f"{type(error).__name__}: {error}"[:200]) from error


def scan(segment: bytes) -> tuple[list[RecordPosition], int]:
    """Every whole record of a segment, and where the last of them ends (0: not even the beginning is whole)."""
    if segment[: len(MAGIC)] != MAGIC:
        return [], 0
    positions, at = [], len(MAGIC)
    while (payload := _payload(segment, at)) is not None:
        try:
            topic, _, _, _, rows, _, _ = _head(payload)
        except (FormatError, ValueError, TypeError, struct.error):
            break
        length = _RECORD.size + len(payload)
        positions.append(RecordPosition(at, length, str(topic), int(rows)))
        at += length
    return positions, at


def _payload(raw: bytes, at: int) -> bytes | None:
    """The payload of the record at `at`; None: the record is not whole."""
    if len(raw) < at + _RECORD.size:
        return None
    length, crc = _RECORD.unpack_from(raw, at)
    payload = raw[at + _RECORD.size : at + _RECORD.size + length]
    if len(payload) < length or length < _HEAD.size or zlib.crc32(payload) != crc:
        return None
    return payload


def _head(payload: bytes) -> list[Any]:
    (length,) = _HEAD.unpack_from(payload)
    head = strict_json.loads(payload[_HEAD.size : _HEAD.size + length])
    if not isinstance(head, list) or len(head) != 7:
        raise ValueError("not a head")
    return head


def _arrow(batch: pa.RecordBatch) -> bytes:
    sink, bare = pa.BufferOutputStream(), batch.schema.remove_metadata()
    with pa.ipc.new_stream(sink, bare, options=_WRITE) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=bare))
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def _batch(raw: bytes) -> pa.RecordBatch:
    check_size(raw)  # what was written is not compressed once more inside
    return next(pa.ipc.open_stream(pa.BufferReader(raw), options=_READ))


def _json(event: Event) -> bytes:
    fields = [event.type, event.source, event.id, event.time_ns, event.data]
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _event(raw: bytes) -> Event:
    kind, source, number, time_ns, data = strict_json.loads(raw, most_bytes=MAX_BODY_BYTES)
    return Event(kind, source, number, time_ns, data)
