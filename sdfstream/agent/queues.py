"""The queues of outputs between agent and bus: in flight, waiting in memory, and on disk in between.

Within a queue nothing overtakes::

    in flight · in front (put back, or loaded from disk) · on disk · being written · held in memory
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sdfstream.records.message import Event, Output

_EVENT_BYTES, _ENTRY_BYTES = 4096, 256
"""Assumed weight of an event, and of each entry of a list in it."""
_COLUMN_BYTES: Final = 1024
"""What a column of a batch costs beside its values: measured, 28 kB for the 27 of a probe row, however few the rows."""
_TEXT_BYTES: Final = 16
"""Assumed of a value whose size its type does not say."""
_row_bytes: Final[dict[tuple[str, int], int]] = {}
"""Of one row, by topic and columns: to ask a batch for its own size costs more than to make it."""
_SMOOTHING: Final = 0.3


@dataclass(slots=True)
class QueuedOutput:
    """One output of a queue."""

    output: Output
    size_bytes: int
    """Bytes in memory, estimated."""
    segment: int | None = None
    """Number of the spill's segment that holds a copy."""
    put_at_ns: int = 0
    """Steady clock."""


class OutputQueue:
    """Outputs of one kind, in order of their numbers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.in_flight: list[QueuedOutput] = []
        self.front: deque[QueuedOutput] = deque()
        self.on_disk = 0
        """Records not loaded yet."""
        self.writing: list[QueuedOutput] = []
        self.held: deque[QueuedOutput] = deque()
        self.acknowledged: Counter[int] = Counter()
        """Segment → outputs that the spill may delete."""
        self._one_by_one = 0

    def take(self, max_bytes: int) -> list[QueuedOutput]:
        """Put the next outputs in flight, up to `max_bytes` but at least one; empty when none can go."""
        if self._one_by_one:
            self._one_by_one -= 1
            max_bytes = 0
        if self.front:
            self.in_flight = pop(self.front, max_bytes)
        elif not self.on_disk and not self.writing:
            self.in_flight = pop(self.held, max_bytes)
        return self.in_flight

    def complete(self) -> list[QueuedOutput]:
        """End the flight: the outputs were taken by the bus, or dropped."""
        completed, self.in_flight = self.in_flight, []
        for item in completed:
            self.release(item)
        return completed

    def put_back(self, *, one_by_one: bool = False) -> None:
        """End the flight: the outputs were not taken, and go again; with `one_by_one` singly."""
        if one_by_one:
            self._one_by_one = len(self.in_flight)
        self.front.extendleft(reversed(self.in_flight))
        self.in_flight = []

    def release(self, item: QueuedOutput) -> None:
        """Let the spill delete its copy of `item`."""
        if item.segment is not None:
            self.acknowledged[item.segment] += 1

    def behind(self) -> bool:
        """Whether outputs older than those of `held` wait."""
        return bool(self.on_disk or self.front or self.writing)


class PutRate:
    """Bytes per second at which outputs are put, smoothed over some seconds."""

    def __init__(self) -> None:
        self._bytes = 0
        self._since_s: float | None = None
        self._bytes_s = 0.0

    def add(self, size: int) -> None:
        """`size` bytes were put."""
        self._bytes += size

    def bytes_s(self, now_s: float) -> float:
        """The rate at `now_s`."""
        if self._since_s is None:
            self._since_s, self._bytes = now_s, 0
        elif now_s - self._since_s >= 1.0:
            seen = self._bytes / (now_s - self._since_s)
            self._bytes_s += (seen - self._bytes_s) * (_SMOOTHING if self._bytes_s else 1.0)
            self._since_s, self._bytes = now_s, 0
        return self._bytes_s


def pop(source: deque[QueuedOutput], max_bytes: int) -> list[QueuedOutput]:
    """Take items from the left of `source`, up to `max_bytes` but at least one; empty only where `source` is."""
    popped: list[QueuedOutput] = []
    size = 0
    while source and (not popped or size + source[0].size_bytes <= max_bytes):
        popped.append(source.popleft())
        size += popped[-1].size_bytes
    return popped


def total_bytes(items: list[QueuedOutput] | deque[QueuedOutput]) -> int:
    """Weight of `items` together, bytes."""
    return sum(item.size_bytes for item in items)


def is_bulk(output: Output) -> bool:
    """Whether `output` carries rows."""
    return isinstance(output.body, pa.RecordBatch)


def queued(output: Output, segment: int | None = None) -> QueuedOutput:
    """`output` with its weight."""
    return QueuedOutput(output, _size_bytes(output), segment)


def _size_bytes(output: Output) -> int:
    if isinstance(output.body, Event):
        data = output.body.data
        lists = [v for v in data.values() if isinstance(v, list | tuple)] if isinstance(data, Mapping) else []
        return _EVENT_BYTES + _ENTRY_BYTES * sum(map(len, lists))
    columns = int(output.body.num_columns)
    row_bytes = _row_bytes.get((output.topic, columns))
    if row_bytes is None:
        row_bytes = _row_bytes[output.topic, columns] = sum(_value_bytes(field.type) for field in output.body.schema)
    return int(output.body.num_rows) * row_bytes + _COLUMN_BYTES * columns


def _value_bytes(of: pa.DataType) -> int:
    if pa.types.is_dictionary(of):
        of = of.index_type
    return max(1, of.bit_width // 8) if pa.types.is_primitive(of) else _TEXT_BYTES
