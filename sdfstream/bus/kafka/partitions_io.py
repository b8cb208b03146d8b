"""A task's consumer, whose partitions are merged in bus order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.groups_io import STOP_S
from sdfstream.bus.kafka.merge import NEVER_NS, Merge, QueuedRecord
from sdfstream.bus.kafka.times import entered_at_ns, header_at_ns
from sdfstream.records.position import Partition, Positions
from sdfstream.records.units import NS_PER_MS

LOG_APPEND_TIME: Final = 1
TASK_BYTES: Final = 16 << 20
"""A task with more queued fetches only what it lacks: a stage that is behind would hold much of its backlog else."""
_LEAST_BYTES: Final = 256 << 10
"""So much of a partition may be queued all the same."""
_FRESH_NS: Final = 300 * NS_PER_MS
"""An answer of the brokers that is younger stands for now: an idle partition is asked ten times a second."""
_SETTLE_NS: Final = 20 * NS_PER_MS
"""Longest time from a producer's clock reading to the fetch, with a broker that is quick."""


class MergedPartitions:
    """The partitions of one task: call `fetch`, then `take`."""

    def __init__(self, consumer: Any, config: KafkaConfig, lost: Callable[[str, int], None]) -> None:
        self.next: dict[Partition, int] = {}
        """Partition → offset of the next message to give out."""
        self.floors_ns: dict[Partition, int] = {}
        """Time of the last message given out, per partition."""
        self._consumer = consumer
        self._origin_ns: int | None = None
        """Bus time when the monotonic clock read 0: a wall clock may be set, and would take bus time along."""
        self._prefix = config.prefix
        self._lost = lost
        self._merge: Merge[Any] = Merge()
        self._to_kafka: dict[Partition, Any] = {}
        self._from_kafka: dict[Any, Partition] = {}
        self._fetched_ns: dict[Partition, int] = {}
        """Time of the last message fetched, per partition."""
        self._reached: dict[Partition, int] = {}
        """The consumer's position: behind what was fetched."""
        self._paused: set[Partition] = set()
        self._given_up: dict[Partition, int | None] = {}
        """Partitions that are waited for no longer, and the brokers' last answer about each (ms)."""

    async def open(self, start: Positions, floors_ns: Mapping[Partition, int]) -> None:
        """Read the partitions of `start`, which the consumer is assigned, from there on."""
        self._to_kafka = {partition: TopicPartition(self._prefix + partition[0], partition[1]) for partition in start}
        self._from_kafka = {topic_partition: partition for partition, topic_partition in self._to_kafka.items()}
        self._merge.open(start)
        self.floors_ns = {partition: floors_ns.get(partition, 0) for partition in start}
        self.seek(start)

    def seek(self, positions: Positions) -> None:
        """Go on at `positions`; queued messages of those partitions are dropped."""
        for partition, offset in positions.items():
            self._consumer.seek(self._to_kafka[partition], offset)
            self._merge.clear(partition)
            self.next[partition] = self._reached[partition] = offset
            self._fetched_ns[partition] = self.floors_ns[partition]

    async def fetch(self, timeout_s: float) -> None:
        """Fetch what the brokers have, waiting for it at most `timeout_s`."""
        self._limit()
        try:
            found = await self._consumer.getmany(timeout_ms=max(0, round(timeout_s * 1000)))
        except OffsetOutOfRangeError as error:
            await self._seek_to_oldest(error.args[0])
            found = {}
        except NoOffsetForPartitionError as error:
            await self._seek_to_oldest({error.args[0]: 0})
            found = {}
        except CorruptRecordException:  # a wrong checksum; the client has dropped what it had of other partitions
            for ours, theirs in self._to_kafka.items():
                self._consumer.seek(theirs, self._reached[ours])
            raise
        for topic_partition, records in found.items():
            partition = self._from_kafka.get(topic_partition)
            if partition is not None:
                self._merge.put(partition, [self._queued(partition, record) for record in records])
        for partition, topic_partition in self._to_kafka.items():
            if topic_partition in found or self._behind(partition):  # else there was nothing to pass, markers included
                self._reached[partition] = await self._consumer.position(topic_partition)

    def take(
        self, max_messages: int, max_bytes: int, *, before_ns: int = NEVER_NS
    ) -> list[tuple[Partition, QueuedRecord[Any]]]:
        """The next messages in bus order, of those that entered before `before_ns`."""
        if not self.held_back():
            return self._given_out([])
        return self._given_out(self._merge.take(self._read_until_ns(), max_messages, max_bytes, before_ns))

    def give_up(self) -> None:
        """Wait no longer for partitions of which the brokers may have more, until they answer."""
        for partition in self._read_until_ns():
            self._given_up[partition] = self._consumer.last_poll_timestamp(self._to_kafka[partition])

    def take_until(
        self, upto: Positions, max_messages: int = 1000, max_bytes: int = 16 << 20
    ) -> list[tuple[Partition, QueuedRecord[Any]]]:
        """Queued messages before `upto`; `next` of partitions without any more moves to it."""
        taken = self._given_out(self._merge.take_until(upto, max_messages, max_bytes))
        for partition, end in upto.items():
            head = self._merge.head(partition)
            if (self._reached[partition] if head is None else head.offset) >= end:
                self.next[partition] = max(self.next[partition], end)
        return taken

    def held_back(self) -> bool:
        """Whether messages are queued: if none may be taken, they wait for a partition that may have more."""
        return any(self._merge.waiting(partition) for partition in self.next)

    def known_until_ns(self) -> int | None:
        """Bus time up to which all was given out; None: a partition is behind, or the brokers' time is not known.

        That is before the next message of a partition that has one queued, and the last poll of one read to its end.
        """
        if self._origin_ns is None:
            return None
        next_ns, polled_ms = [], []
        for partition, topic_partition in self._to_kafka.items():
            if (head := self._merge.head(partition)) is not None:
                next_ns.append(head.at_ns - 1)
            elif self._behind(partition):
                return None
            else:
                polled_ms.append(self._consumer.last_poll_timestamp(topic_partition))
        # a wall clock that was set back in between makes a negative age
        age_ns = max(0, time.time_ns() - min(polled_ms) * NS_PER_MS) if polled_ms else 0
        return min([*next_ns, self._origin_ns + time.monotonic_ns() - age_ns - _SETTLE_NS])

    def now_ns(self) -> int:
        """Bus time, by the brokers' clock and the time since; none of it from this machine's wall clock."""
        return time.monotonic_ns() + (self._origin_ns or 0)

    def set_broker_time(self, at_ns: int) -> None:
        """Take bus time from the brokers' clock, which reads `at_ns` now."""
        self._origin_ns = at_ns - time.monotonic_ns()

    def lag(self) -> int:
        """Records not given out yet, by the brokers' last answers."""
        lag = 0
        for partition, topic_partition in self._to_kafka.items():
            with suppress(IllegalStateError):
                lag += max(0, (self._consumer.highwater(topic_partition) or 0) - self.next[partition])
        return lag

    async def stalled(self) -> bool:
        """Whether the consumer stands still although the brokers have more; False when they do not answer."""
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                ends = await self._consumer.end_offsets(list(self._from_kafka))
            return any(end > self._reached[self._from_kafka[topic_partition]] for topic_partition, end in ends.items())
        return False

    def _read_until_ns(self) -> dict[Partition, int]:
        """Of partitions of which the brokers may have more than was fetched: bus time up to which it was; 0: any.

        An answer that said that there is no more grows old where this process is starved, and where nothing of the
        partition is fetched since much of it is queued: once that is taken, it would be taken for silent.
        """
        found = {}
        for partition, topic_partition in self._to_kafka.items():
            polled_ms = self._consumer.last_poll_timestamp(topic_partition)
            if partition in self._given_up and polled_ms == self._given_up[partition]:
                continue
            self._given_up.pop(partition, None)
            if self._behind(partition):
                found[partition] = 0
            elif (age_ns := time.time_ns() - polled_ms * NS_PER_MS) > _FRESH_NS:
                found[partition] = self.now_ns() - age_ns if self._origin_ns is not None else 0
        return found

    def _behind(self, partition: Partition) -> bool:
        """Whether the brokers have more of `partition` by their last answer, or have not answered yet."""
        stable = self._consumer.last_stable_offset(self._to_kafka[partition])
        return stable is None or stable > self._reached[partition]

    def _given_out(self, taken: list[tuple[Partition, QueuedRecord[Any]]]) -> list[tuple[Partition, QueuedRecord[Any]]]:
        for partition, record in taken:
            self.next[partition] = record.offset + 1
            self.floors_ns[partition] = record.at_ns
        for partition, reached in self._reached.items():
            if not self._merge.waiting(partition):  # behind markers of transactions
                self.next[partition] = max(self.next[partition], reached)
        return taken

    def _queued(self, partition: Partition, record: Any) -> QueuedRecord[Any]:
        by_broker = record.timestamp_type == LOG_APPEND_TIME
        header_ns = header_at_ns(record.headers)
        at_ns, _ = entered_at_ns(header_ns, record.timestamp, by_broker, self._fetched_ns[partition])
        self._fetched_ns[partition] = at_ns
        return QueuedRecord(at_ns, record.offset, len(record.value or b"") + 512, record)

    def _limit(self) -> None:
        """Pause fetching of partitions with much queued, as long as all together have; never of one that holds others.

        One that has nothing queued is fetched always, so whatever the merge waits for comes.
        """
        queued = sum(self._merge.bytes.values())
        for partition, size in self._merge.bytes.items():
            if queued > TASK_BYTES and size > _LEAST_BYTES and partition not in self._paused:
                self._paused.add(partition)
                self._consumer.pause(self._to_kafka[partition])
            elif partition in self._paused and (queued < TASK_BYTES // 2 or size < _LEAST_BYTES // 2):
                self._paused.discard(partition)
                self._consumer.resume(self._to_kafka[partition])

    async def _seek_to_oldest(self, where: Mapping[Any, int]) -> None:
        """Move positions that retention removed to the oldest record, and count what is gone."""
        begins = await self._consumer.beginning_offsets(list(where))
        for topic_partition, offset in where.items():
            if topic_partition not in self._from_kafka:
                continue
            self._lost(self._from_kafka[topic_partition][0], max(0, begins[topic_partition] - offset))
            self.seek({self._from_kafka[topic_partition]: begins[topic_partition]})
