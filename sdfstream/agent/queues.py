"""Outputs on their way to the bus, in order: what is in flight, what waits, and what stands on disk between the two.

Within a lane nothing overtakes::

    in flight · in front (came back, or loaded from disk) · on disk · being written · held in memory
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from sdfstream.records.message import Event, Output

_EVENT_BYTES, _ENTRY_BYTES = 4096, 256
"""What an event, and each entry of a list in it, is taken to weigh."""
_COLUMN_BYTES: Final = 1024
"""What a column of a batch costs beside its values: measured, 28 kB for the 27 of a probe row, however few the rows."""
_SMOOTHING: Final = 0.3


@dataclass(slots=True)
class Item:
    """One output on its way."""

    output: Output
    weight: int
    """Bytes in memory, about."""
    segment: int | None = None
    """Of the spill that still holds it."""


class Lane:
    """Outputs of one kind, in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.flying: list[Item] = []
        self.front: deque[Item] = deque()
        self.on_disk = 0
        """Records that were not loaded yet."""
        self.writing: list[Item] = []
        self.held: deque[Item] = deque()
        self.acknowledged: Counter[int] = Counter()
        """Segment → outputs that the spill need not keep any more."""
        self._one_by_one = 0

    def take(self, max_bytes: int) -> list[Item]:
        """The next outputs, up to `max_bytes` but at least one, in flight from now on; empty when none can go."""
        if self._one_by_one:
            self._one_by_one -= 1
            max_bytes = 0
        if self.front:
            self.flying = pop(self.front, max_bytes)
        elif not self.on_disk and not self.writing:
            self.flying = pop(self.held, max_bytes)
        return self.flying

    def landed(self) -> list[Item]:
        """What is in flight was taken by the bus, or given up."""
        landed, self.flying = self.flying, []
        for item in landed:
            self.release(item)
        return landed

    def came_back(self, *, one_by_one: bool = False) -> None:
        """What is in flight was not taken; with `one_by_one` it goes singly from now on."""
        if one_by_one:
            self._one_by_one = len(self.flying)
        self.front.extendleft(reversed(self.flying))
        self.flying = []

    def release(self, item: Item) -> None:
        """The spill need not keep `item` any more."""
        if item.segment is not None:
            self.acknowledged[item.segment] += 1

    def behind(self) -> bool:
        """Whether outputs older than those held in memory wait."""
        return bool(self.on_disk or self.front or self.writing)


class PutRate:
    """Bytes per second at which outputs come, over the last few seconds."""

    def __init__(self) -> None:
        self._bytes = 0
        self._since_s: float | None = None
        self._bytes_s = 0.0

    def add(self, size: int) -> None:
        """`size` bytes came."""
        self._bytes += size

    def bytes_s(self, now_s: float) -> float:
        """The rate by `now_s`."""
        if self._since_s is None:
            self._since_s, self._bytes = now_s, 0
        elif now_s - self._since_s >= 1.0:
            seen = self._bytes / (now_s - self._since_s)
            self._bytes_s += (seen - self._bytes_s) * (_SMOOTHING if self._bytes_s else 1.0)
            self._since_s, self._bytes = now_s, 0
        return self._bytes_s


def pop(source: deque[Item], max_bytes: int) -> list[Item]:
    """Items from the left of `source`, up to `max_bytes` but at least one where there is one."""
    popped: list[Item] = []
    size = 0
    while source and (not popped or size + source[0].weight <= max_bytes):
        popped.append(source.popleft())
        size += popped[-1].weight
    return popped


def total(items: list[Item] | deque[Item]) -> int:
    """What `items` weigh together."""
    return sum(item.weight for item in items)


def is_bulk(output: Output) -> bool:
    """Whether `output` carries rows."""
    return isinstance(output.body, pa.RecordBatch)


def item_of(output: Output, segment: int | None = None) -> Item:
    """`output` with what it weighs."""
    return Item(output, _weight(output), segment)


def _weight(output: Output) -> int:
    if isinstance(output.body, Event):
        data = output.body.data
        lists = [v for v in data.values() if isinstance(v, list | tuple)] if isinstance(data, Mapping) else []
        return _EVENT_BYTES + _ENTRY_BYTES * sum(map(len, lists))
    return int(output.body.nbytes) + _COLUMN_BYTES * int(output.body.num_columns)
