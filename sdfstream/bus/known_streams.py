"""Arrow streams of producers that repeat themselves, read without reading again what stands before their rows.

Each message is a whole stream: a schema, a dictionary for every column of names, one record batch. An agent's schema
and dictionaries are the same bytes for hours, and reading and judging them is nine tenths of what a message of 72 rows
costs. So the *front* of a producer's stream, all that stands before its record batch, is remembered with a reader that
has read it, and of the next message that reader is given the record batch alone.

A message is read here only where this says what `codec.decode_own` would have said:

1. its front is, byte for byte, one of the same topic and key that passed whole, and names nobody but its producer;
2. the metadata of its record batch (rows, nulls, where each buffer lies) are, byte for byte, those of a record batch of
   the topic that passed whole and was not compressed, and nothing stands behind it;
3. Arrow's full validation passes, and every column is within its bounds.

Everything else is `None`: the caller decodes it as ever, and shows it to `learn` once it has passed.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from struct import unpack_from
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.bus import arrow_size, column_bounds, producers
from sdfstream.bus.conform import bounded_numbers, conform, remember
from sdfstream.errors import FormatError
from sdfstream.records.message import Body
from sdfstream.records.topics import TOPICS

MOST_BYTES: Final = 32 << 20
"""Of fronts remembered."""
MOST_FRONT: Final = 64 << 10
"""Bytes of one front; a producer with more names is read as ever."""
MOST_SHAPES: Final = 4096
_MOST_TRIES: Final = 8
"""Messages after which a front that could not be opened is let be, until the producer has another."""
_END: Final = b"\xff\xff\xff\xff\0\0\0\0"
_READ: Final = pa.ipc.IpcReadOptions(use_threads=False)


class _Run(NamedTuple):
    """Numbers with one bound that lie side by side."""

    kind: np.dtype[Any]
    most: float
    """Of their size."""
    at: int
    """Bytes from the start of the record batch's message."""
    numbers: int
    """How many."""

    @property
    def end(self) -> int:
        """Where the next column lies, if it follows at once."""
        return self.at + self.numbers * self.kind.itemsize


class _Shape(NamedTuple):
    """What the metadata of a record batch say."""

    rows: int
    message_bytes: int
    """From the start of its message to the end of the stream."""
    tail: bytes
    """What ends the stream."""
    runs: tuple[_Run, ...]
    """All columns with bounds."""


class _Source:
    """A file whose next bytes are those of the message that is read; Arrow asks for them piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._value = b""
        self._at = 0

    def hold(self, value: bytes, at: int) -> None:
        """Give out `value` from `at` on."""
        self._value, self._at = value, at

    def read(self, size: int = -1) -> bytes:
        """The next `size` bytes; all that are left, where `size` is negative."""
        at, self._at = self._at, len(self._value) if size < 0 else self._at + size
        return self._value[at : self._at]

    def tell(self) -> int:
        """The position in the message."""
        return self._at

    def readable(self) -> bool:
        """As files have it."""
        return True

    def close(self) -> None:
        """As files have it."""
        self._value = b""


@dataclass(slots=True)
class _Front:
    """All that stands before the record batch in a producer's streams."""

    octets: bytes
    tries: int = 0
    source: _Source | None = None
    reader: Any = None
    """Has read it; None: not opened yet."""


class KnownStreams:
    """Fronts of producers, within `MOST_BYTES`, and shapes of record batches. For one thread."""

    def __init__(self) -> None:
        self._fronts: OrderedDict[tuple[str, str], _Front] = OrderedDict()
        self._bytes = 0
        self._shapes: dict[tuple[str, bytes], _Shape] = {}

    def read(self, topic: str, key: str, value: bytes) -> pa.RecordBatch | None:
        """The rows of a message that needs no more than this; None: decode it."""
        front = self._fronts.get((topic, key))
        if front is None or front.reader is None or not value.startswith(front.octets):
            return None
        start = len(front.octets)
        shape = self._shapes.get((topic, _metadata(value, start)))
        if shape is None or len(value) - start != shape.message_bytes or not value.endswith(shape.tail):
            return None
        try:
            batch = _next_batch(front, value, start)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, StopIteration, UnicodeError, MemoryError):
            self._forget(topic, key)  # nobody knows where the reader stands now
            return None
        if batch.num_rows != shape.rows or not (_all_within(shape, value, start) or _within(topic, batch)):
            return None
        remember(topic, batch)
        return batch

    def learn(self, topic: str, key: str, value: bytes, body: Body) -> None:
        """Remember what `value` is made of: a message of `topic` that passed whole, without a row left out."""
        if not isinstance(body, pa.RecordBatch) or not body.num_rows:
            return
        front = self._fronts.get((topic, key))
        known = front is not None and value.startswith(front.octets)
        if front is not None and known and front.reader is None and front.tries >= _MOST_TRIES:
            return
        messages = list(arrow_size.messages(value))
        batch = next((m for m in messages if m.is_batch), None)
        if batch is None or any(m.grown_bytes for m in messages):
            return
        if front is None or not known or len(front.octets) != batch.at:
            self._remember(topic, key, value[: batch.at])
            return
        if front.reader is None and not _open(front, topic, key, value):
            return
        shape = _shape(topic, value, batch, body)
        if shape is not None:
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[topic, _metadata(value, batch.at)] = shape

    def _remember(self, topic: str, key: str, octets: bytes) -> None:
        self._forget(topic, key)
        if len(octets) > MOST_FRONT:
            return
        self._fronts[topic, key] = _Front(octets)
        self._bytes += len(octets)
        while self._bytes > MOST_BYTES:
            self._bytes -= len(self._fronts.popitem(last=False)[1].octets)

    def _forget(self, topic: str, key: str) -> None:
        front = self._fronts.pop((topic, key), None)
        if front is not None:
            self._bytes -= len(front.octets)


def _metadata(value: bytes, start: int) -> bytes:
    """The bytes of an encapsulated message from `start` on up to its body; fewer where it is cut off."""
    size = unpack_from("<i", value, start + 4)[0] if start + 8 <= len(value) else 0
    return value[start : start + 8 + max(size, 0)]


def _next_batch(front: _Front, value: bytes, start: int) -> pa.RecordBatch:
    assert front.source is not None
    front.source.hold(value, start)
    try:
        return front.reader.read_next_batch()
    finally:
        front.source.hold(b"", 0)


def _open(front: _Front, topic: str, key: str, value: bytes) -> bool:
    """Have a reader read the front, if its columns are the topic's own, its names sound and all its producer's."""
    front.tries += 1
    columns = TOPICS[topic].columns
    assert columns is not None, topic
    source = _Source()
    source.hold(value, 0)
    try:
        reader = pa.ipc.open_stream(source, options=_READ)
        batch = reader.read_next_batch()
        if conform(columns, batch)[0] is not batch or not producers.names_only_own(topic, key, batch):
            return False
    except (pa.ArrowException, OSError, StopIteration, FormatError):
        return False
    front.source, front.reader = source, reader
    return True


def _shape(topic: str, value: bytes, message: arrow_size.MessageSize, body: pa.RecordBatch) -> _Shape | None:
    """The shape of the record batch in `value`; None where `body`, which was read from it, is not made of its bytes."""
    metadata = _metadata(value, message.at)
    tail = value[message.at + len(metadata) + message.stored_bytes :]
    if tail not in (_END, b""):
        return None
    base = pa.py_buffer(value).address + message.at
    runs: list[_Run] = []
    for index, field in bounded_numbers(topic):
        column = body.column(index)
        data = column.buffers()[1]
        at = -1 if data is None else data.address - base + column.offset * field.type.bit_width // 8
        if not len(metadata) <= at < len(value) - message.at:
            return None
        run = _Run(*column_bounds.bound_of(field), at, len(column))
        if runs and runs[-1].end == at and runs[-1][:2] == run[:2]:
            runs[-1] = runs[-1]._replace(numbers=runs[-1].numbers + run.numbers)
        else:
            runs.append(run)
    return _Shape(body.num_rows, len(value) - message.at, tail, tuple(runs))


def _all_within(shape: _Shape, value: bytes, start: int) -> bool:
    """Whether all numbers are within their bounds, those that stand in the place of a null as well."""
    for run in shape.runs:
        numbers = np.frombuffer(value, run.kind, run.numbers, start + run.at)
        if not (numbers.max() <= run.most and (run.kind.kind == "u" or numbers.min() >= -run.most)):
            return False  # or it is no number at all
    return True


def _within(topic: str, batch: pa.RecordBatch) -> bool:
    """Whether all numbers that are not null are within their bounds."""
    columns = ((field, batch.column(index)) for index, field in bounded_numbers(topic))
    return all(column_bounds.within(field, column) is column for field, column in columns)
