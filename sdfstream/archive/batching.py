"""Batches of one topic: messages wait until an insert is due, then are cut into batches. Pure; time comes in.

A batch is one contiguous range of offsets of every partition it touches. Its messages are sorted by partition and
offset, in whatever order the partitions were read, so the rows of an insert follow from its ranges alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from sdfstream.archive.config import BatchLimits
from sdfstream.archive.intent import Intent, Span, by_partition, runs_of, token
from sdfstream.records.message import Message
from sdfstream.records.position import partition_of
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_MS

_NS_PER_HOUR: Final = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one topic that go into the archive by one insert."""

    intent: Intent
    messages: tuple[Message, ...]
    """By partition and offset."""
    bytes: int
    since_ns: int
    """When the oldest of them was added."""


def in_order(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages` by partition and offset."""
    return tuple(sorted(messages, key=lambda m: m.bus_seq))


def message_bytes(message: Message) -> int:
    """About the memory of a message, from its shape alone: asking Arrow takes longer than encoding the rows.

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
class Waiting:
    """Messages of one topic that are in no batch yet, in the order in which they were read."""

    messages: list[Message] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    since_ns: list[int] = field(default_factory=list)
    partitions: Counter[int] = field(default_factory=Counter)
    """Number of them in each partition."""
    rows: int = 0
    bytes: int = 0

    def add(self, message: Message, now_ns: int) -> int:
        """Add `message`; returns its bytes."""
        size = message_bytes(message)
        self.messages.append(message)
        self.sizes.append(size)
        self.since_ns.append(now_ns)
        self.partitions[partition_of(message)[1]] += 1
        self.rows += message.rows
        self.bytes += size
        return size

    def due_ns(self, limits: BatchLimits) -> int | None:
        """When an insert of the messages is due; None when there are none."""
        if not self.messages:
            return None
        if self.rows >= limits.rows or self.bytes >= limits.bytes or len(self.messages) >= limits.most_messages:
            return self.since_ns[0]
        return self.since_ns[0] + self._age_ns(limits)

    def joins_ns(self, limits: BatchLimits) -> int | None:
        """From when on the messages go along with a round that others are due for; None when there are none.

        So all tables soon have their inserts in the same rounds.
        """
        due_ns = self.due_ns(limits)
        return None if due_ns is None else due_ns - self._age_ns(limits) // 2

    def _age_ns(self, limits: BatchLimits) -> int:
        few = self.rows < limits.few_rows
        return (max(limits.age_ms, limits.few_age_ms) if few else limits.age_ms) * NS_PER_MS

    def cut(self, limits: BatchLimits, bus_id: str, begins: Mapping[int, int], read: Mapping[int, int]) -> Batch:
        """A batch of the first messages, at least one and at most what `limits` allow; the rest goes on waiting.

        `begins` is the position before the batch in each partition (-1: none yet). `read` is the position behind
        every message added: where no message of a partition is left, the batch reaches up to there, over the bus's own
        marks in between.
        """
        n, rows, size = self._fitting(limits)
        taken, since_ns = in_order(self.messages[:n]), self.since_ns[0]
        topic = taken[0].topic
        spans = {}
        for partition, offsets in by_partition(taken).items():
            end = offsets[-1] + 1
            self.partitions[partition] -= len(offsets)
            if not self.partitions[partition]:
                end = max(end, read.get(partition, end))
            spans[partition] = Span(begins.get(partition, -1), end, runs_of(offsets))
        del self.messages[:n], self.sizes[:n], self.since_ns[:n]
        self.rows -= rows
        self.bytes -= size
        at_ns = min(m.bus_at_ns for m in taken)
        return Batch(Intent(topic, token(bus_id, topic, taken), rows, spans, at_ns), taken, size, since_ns)

    def _fitting(self, limits: BatchLimits) -> tuple[int, int, int]:
        rows = size = n = 0
        hours: set[int] = set()
        for message, bytes_ in zip(self.messages[: limits.most_messages], self.sizes, strict=False):
            hours.add(message.bus_at_ns // _NS_PER_HOUR)
            over = rows + message.rows > limits.most_rows or size + bytes_ > limits.most_bytes
            if n and (over or len(hours) > limits.most_hours):
                break
            n, rows, size = n + 1, rows + message.rows, size + bytes_
        return n, rows, size
