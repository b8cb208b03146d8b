"""Records that the Kafka client cannot read are set aside one by one, not met again for ever.

A broker looks at the lengths in a record, not at its text. aiokafka decodes the names of headers as strict UTF-8 while
it hands records out, so that one record of anybody with the right to write raised out of every read, before the codec
saw it and again after each restart. To seek behind it is no way out: a broker answers with the whole batch around the
offset, which the client reads from its first record on.

So the client's reader of a fetched partition is replaced by `ReadableRecords`. Batches that the client can read pass
unchanged, compressed ones within a bound (`unpack`). Of another one every record is read by itself, and one that fails
is replaced by a record at the same offset whose value is `Unreadable`. It goes the way of all records, `check` refuses
it like the codec does, and so what was before it, behind it and in other partitions is neither lost nor read twice, and
positions, aborted transactions and commits are right without anything done for them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.util import decode_varint_py

from sdfstream.bus.kafka.unpack import plain
from sdfstream.errors import FormatError

REASON: Final = "record"
MOST_STORED: Final = 64 << 10
"""Bytes of an unreadable record that its dead letter holds: decompressed, it may be larger than any message."""
_LENGTH: Final = struct.Struct(">qi")
"""First offset, and length of what follows."""
_MAGIC_AT: Final = 16
_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""Header of a batch of format 2: first offset, length, epoch, magic, CRC, attributes, last offset's distance, first and
last time, producer, its epoch, number of its first record, records."""
_APPEND_TIME_MASK: Final = 8


class Unreadable(bytes):
    """The value of a record that could not be read: the first bytes of the whole record, and why."""

    why: str = ""


def check(record: Any) -> None:
    """Raise `FormatError` ``record`` for a record in place of one that the client could not read."""
    if isinstance(record.value, Unreadable):
        raise FormatError(REASON, f"partition {record.partition}, offset {record.offset}: {record.value.why}")


def install() -> None:
    """Let every consumer of this process read by `ReadableRecords`."""
    fetcher.MemoryRecords = ReadableRecords


class ReadableRecords:
    """What a broker answered for one partition; stands in for aiokafka's ``MemoryRecords``."""

    def __init__(self, data: bytes) -> None:
        self._records = MemoryRecords(data)
        self._data = data
        self._at = 0

    def has_next(self) -> bool:
        """Whether there is another whole batch."""
        return bool(self._records.has_next())

    def size_in_bytes(self) -> int:
        """Bytes of the answer."""
        return len(self._data)

    def next_batch(self) -> _Batch | None:
        """The next batch; None behind the last."""
        batch = self._records.next_batch()
        if batch is None:
            return None
        begin = self._at
        self._at += _LENGTH.size + _LENGTH.unpack_from(self._data, begin)[1]
        return _Batch(batch, memoryview(self._data)[begin : self._at])


class _Batch:
    """A batch whose records can all be iterated."""

    __slots__ = ("_batch", "_raw")

    def __init__(self, batch: Any, raw: memoryview) -> None:
        self._batch = batch
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __next__(self) -> Any:
        return next(self._batch)  # the only record of a control batch

    def __iter__(self) -> Iterator[Any]:
        given = 0
        last = self._batch.base_offset - 1
        try:
            raw = plain(self._raw)
        except Exception as error:  # of the decompressors
            yield _stand_in_for_rest(self._batch, last, *_times(self._raw), error)
            return
        try:
            for record in self._batch if raw is self._raw else DefaultRecordBatch(bytes(raw)):
                given += 1
                last = record.offset
                yield record
        except Exception as error:  # the client raises a dozen kinds
            failed = error
        else:
            return
        yield from _one_by_one(self._batch, raw, given, last, failed)


class _StandIn(NamedTuple):
    """A record at the place of one that cannot be read; fields as aiokafka's."""

    offset: int
    timestamp: int
    timestamp_type: int
    value: Unreadable
    key: None = None
    headers: tuple[()] = ()
    checksum: None = None


def _times(raw: memoryview) -> tuple[int, int]:
    """Time of a batch, ms, and its kind: 1 is the broker's."""
    if raw[_MAGIC_AT] < 2:
        return 0, 0
    fields = _HEADER.unpack_from(raw)
    kind = int(bool(fields[5] & _APPEND_TIME_MASK))
    return fields[8] if kind else fields[7], kind


def _one_by_one(batch: Any, raw: memoryview, given: int, last: int, failed: Exception) -> Iterator[Any]:
    """The records of a batch, not compressed, from number `given` on; the one before it has offset `last`."""
    at_ms, kind = _times(raw)
    if raw[_MAGIC_AT] < 2:
        yield _stand_in_for_rest(batch, last, at_ms, kind, failed)
        return
    fields = _HEADER.unpack_from(raw)
    head = _HEADER.pack(*fields[:12], 1)
    try:
        for number, (length, piece) in enumerate(_pieces(raw, fields[12])):
            if number < given:
                continue
            try:
                record = next(iter(DefaultRecordBatch(head + length + piece)))
            except Exception as error:
                offset = _offset(piece, batch, last)
                record = _StandIn(offset, at_ms, kind, _unreadable(piece, _said(error)))
            last = record.offset
            yield record
    except Exception as error:  # the pieces themselves: a length
        yield _stand_in_for_rest(batch, last, at_ms, kind, error)


def _pieces(raw: memoryview, n: int) -> Iterator[tuple[bytes, bytes]]:
    """Length, as it stands there, and bytes of every record of a batch of format 2."""
    body = bytes(raw[_HEADER.size :])
    at = 0
    for _ in range(n):
        size, begin = decode_varint_py(body, at)
        if not 0 < size <= len(body) - begin:
            raise ValueError(f"a record of {size} bytes with {len(body) - begin} left")
        yield body[at:begin], body[begin : begin + size]
        at = begin + size


def _offset(piece: bytes, batch: Any, last: int) -> int:
    """Offset of the record in `piece`, which comes after `last`; where it does not say one, the next."""
    try:
        _, at = decode_varint_py(piece, 1)  # behind the attributes: the time's distance, then the offset's
        offset = int(batch.base_offset + decode_varint_py(piece, at)[0])
    except (IndexError, ValueError):
        return last + 1
    return offset if last < offset < batch.next_offset else last + 1


def _stand_in_for_rest(batch: Any, last: int, at_ms: int, kind: int, error: Exception) -> _StandIn:
    why = f"nothing from here to offset {batch.next_offset - 1} can be read: {_said(error)}"
    return _StandIn(last + 1, at_ms, kind, _unreadable(b"", why))


def _unreadable(piece: bytes, why: str) -> Unreadable:
    value = Unreadable(piece[:MOST_STORED])
    value.why = (
        why if len(piece) <= MOST_STORED else f"{why} (the first {MOST_STORED} of {len(piece)} bytes are stored)"
    )
    return value


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
