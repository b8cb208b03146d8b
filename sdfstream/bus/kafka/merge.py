"""Several partitions read as one stream in bus order, whatever order the brokers hand them out in. Pure.

A partition of which the brokers may have more than was fetched, and of which no message is queued here, holds back what
may be younger than its next message. So after an outage a stage reads the messages of the outage in bus order, and does
not take an unread topic for a silent one. A partition that is read to its end holds none back.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from sdfstream.records.position import Partition, Positions

T = TypeVar("T")

NEVER_NS: Final = 1 << 63


class QueuedRecord(NamedTuple, Generic[T]):
    """A fetched message that waits for its turn."""

    at_ns: int
    offset: int
    size_bytes: int
    item: T


@dataclass(slots=True)
class Merge(Generic[T]):
    """The queued messages of every partition of a task."""

    queues: dict[Partition, deque[QueuedRecord[T]]] = field(default_factory=dict)
    bytes: dict[Partition, int] = field(default_factory=dict)
    """Queued bytes per partition."""

    def open(self, partitions: Iterable[Partition]) -> None:
        """Begin with empty queues of `partitions`."""
        self.queues = {partition: deque() for partition in sorted(partitions)}
        self.bytes = dict.fromkeys(self.queues, 0)

    def put(self, partition: Partition, records: Iterable[QueuedRecord[T]]) -> None:
        """Queue `records` of `partition`; their times never go back."""
        queue = self.queues[partition]
        for record in records:
            queue.append(record)
            self.bytes[partition] += record.size_bytes

    def waiting(self, partition: Partition) -> bool:
        """Whether a message of `partition` is queued."""
        return bool(self.queues[partition])

    def head(self, partition: Partition) -> QueuedRecord[T] | None:
        """The next message of `partition`."""
        queue = self.queues[partition]
        return queue[0] if queue else None

    def clear(self, partition: Partition) -> None:
        """Drop the queued messages of `partition`."""
        self.queues[partition].clear()
        self.bytes[partition] = 0

    def take(
        self, read_until_ns: Mapping[Partition, int], max_messages: int, max_bytes: int, before_ns: int = NEVER_NS
    ) -> list[tuple[Partition, QueuedRecord[T]]]:
        """The next messages in order of (time, partition, offset), at least one if any may go.

        Parameters
        ----------
        read_until_ns : mapping of Partition to int
            Of partitions of which the brokers may have more: bus time up to which all was fetched. What is younger
            waits as long as nothing of such a partition is queued.
        max_messages, max_bytes : int
            Where to stop.
        before_ns : int
            What is of this bus time or younger waits.
        """
        until_ns = min((at for partition, at in read_until_ns.items() if not self.queues[partition]), default=NEVER_NS)
        until_ns = min(until_ns, before_ns - 1)
        heads = [(queue[0].at_ns, partition) for partition, queue in self.queues.items() if queue]
        heapq.heapify(heads)
        taken: list[tuple[Partition, QueuedRecord[T]]] = []
        size = 0
        while heads and len(taken) < max_messages and (size < max_bytes or not taken):
            at_ns, partition = heapq.heappop(heads)
            if at_ns > until_ns:
                break
            record = self._pop(partition)
            size += record.size_bytes
            taken.append((partition, record))
            if self.queues[partition]:
                heapq.heappush(heads, (self.queues[partition][0].at_ns, partition))
            else:
                until_ns = min(until_ns, read_until_ns.get(partition, NEVER_NS))
        return taken

    def take_until(self, upto: Positions, max_messages: int, max_bytes: int) -> list[tuple[Partition, QueuedRecord[T]]]:
        """Queued messages before the offsets `upto`, partition by partition, whichever others are behind."""
        taken: list[tuple[Partition, QueuedRecord[T]]] = []
        size = 0
        for partition, end in upto.items():
            queue = self.queues[partition]
            while queue and queue[0].offset < end and len(taken) < max_messages and (size < max_bytes or not taken):
                record = self._pop(partition)
                size += record.size_bytes
                taken.append((partition, record))
        return taken

    def _pop(self, partition: Partition) -> QueuedRecord[T]:
        record = self.queues[partition].popleft()
        self.bytes[partition] -= record.size_bytes
        return record
