"""When to insert: messages gather per topic until rows, bytes or age are reached. Pure; time comes in."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sdfstream.archive.config import BatchLimits
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_MS


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic that go into the archive by one insert."""

    topic: str
    messages: tuple[Message, ...]
    rows: int
    bytes: int
    token: str
    """Insert deduplication token: the same messages of the same bus give the same token, and only they do."""


def token(bus_id: str, topic: str, messages: Sequence[Message]) -> str:
    """The deduplication token of one insert: bus, topic, range of message numbers, and a digest of all of them.

    The digest tells apart two sets with the same ends, which partitions of a Kafka topic can give.
    """
    numbers = [m.bus_seq for m in messages]
    digest = hashlib.blake2s(",".join(map(str, numbers)).encode(), digest_size=6).hexdigest()
    return f"{bus_id}/{topic}/{numbers[0]}-{numbers[-1]}/{len(numbers)}-{digest}"


def message_bytes(message: Message) -> int:
    """About what a message holds in memory, from its shape alone: asking Arrow takes longer than encoding the rows.

    Rows count the widths of their columns (a name: its index) and 1 KiB for the batch; an event counts 1 KiB and
    256 bytes for each element of its lists.
    """
    if isinstance(message.body, pa.RecordBatch):
        return 1024 + int(message.body.num_rows) * _row_bytes(message.topic, message.body)
    lists = (v for v in message.body.data.values() if isinstance(v, list | tuple))
    return 1024 + 256 * sum(len(v) for v in lists)


def _row_bytes(topic: str, batch: pa.RecordBatch) -> int:
    known = _ROW_BYTES.get(topic)
    return known if known is not None else schema_row_bytes(batch.schema)


def schema_row_bytes(schema: pa.Schema) -> int:
    """Bytes of one row over all columns; 16 for a column without a fixed width."""
    return sum(_width(field.type) for field in schema)


def _width(kind: pa.DataType) -> int:
    if pa.types.is_dictionary(kind):
        return _width(kind.index_type)
    try:
        return -(-int(kind.bit_width) // 8)
    except ValueError:
        return 16


_ROW_BYTES: Final = {name: schema_row_bytes(t.columns) for name, t in ARCHIVED.items() if t.columns is not None}


@dataclass(slots=True)
class _Waiting:
    messages: list[Message] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0
    since_ns: int = 0
    """When the oldest of them was added."""


class Coalescer:
    """Messages waiting for their insert, by topic.

    `now_ns` is any monotone clock. `take` gives at most one batch per call, the topic that is furthest over its
    limits in age first, so that a caller can work on one batch while others gather.
    """

    def __init__(self, limits: BatchLimits, bus_id: str) -> None:
        self._limits = limits
        self._bus_id = bus_id
        self._topics: dict[str, _Waiting] = {}
        self.bytes = 0

    def add(self, messages: Iterable[Message], now_ns: int) -> None:
        """Let `messages` wait; order within a topic is kept."""
        for message in messages:
            waiting = self._topics.setdefault(message.topic, _Waiting())
            if not waiting.messages:
                waiting.since_ns = now_ns
            size = message_bytes(message)
            waiting.messages.append(message)
            waiting.sizes.append(size)
            waiting.rows += message.rows
            waiting.bytes += size
            self.bytes += size

    def wait_ns(self, now_ns: int) -> int | None:
        """How long until a batch is due: 0 when one is, None when nothing waits."""
        waits = [self._wait_of(w, now_ns) for w in self._topics.values() if w.messages]
        return min(waits) if waits else None

    def take(self, now_ns: int, *, force: bool = False) -> Batch | None:
        """The next batch that is due; with `force` the next of all that wait."""
        due = [(self._wait_of(w, now_ns), w.since_ns, t) for t, w in self._topics.items() if w.messages]
        if not due:
            return None
        wait, _, topic = min(due)
        if wait > 0 and not force:
            return None
        return self._cut(topic)

    def _wait_of(self, waiting: _Waiting, now_ns: int) -> int:
        if waiting.rows >= self._limits.rows or waiting.bytes >= self._limits.bytes:
            return 0
        return max(0, waiting.since_ns + self._limits.age_ms * NS_PER_MS - now_ns)

    def _cut(self, topic: str) -> Batch:
        """The first messages of `topic` up to the limits, at least one; the rest goes on waiting."""
        waiting = self._topics[topic]
        rows = size = n = 0
        for message, bytes_ in zip(waiting.messages, waiting.sizes, strict=True):
            if n and (rows + message.rows > self._limits.rows or size + bytes_ > self._limits.bytes):
                break
            n, rows, size = n + 1, rows + message.rows, size + bytes_
        taken = tuple(waiting.messages[:n])
        rest = _Waiting(
            waiting.messages[n:], waiting.sizes[n:], waiting.rows - rows, waiting.bytes - size, waiting.since_ns
        )
        self._topics[topic] = rest
        self.bytes -= size
        return Batch(topic, taken, rows, size, token(self._bus_id, topic, taken))
