"""A consumer group's member on Kafka.

Commits are manual, after the caller has dealt with what it read. ``bus_seq`` is the record's offset, with the
partition in the bits from 48 up, so that (topic, bus_seq) names one message. A record that cannot be decoded is
copied to ``<topic>.dlq`` with the reason before the position moves past it. A consumer that stands still although
its topics go on (a known fault of the client after broker restarts) is replaced by a new one at the same positions.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
)

from sdfstream.bus import dead_letters
from sdfstream.bus.kafka import fitting
from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.decoded import ReadRecord
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import STOP_S, Rebalance, commit_first_positions, make_consumer, stop
from sdfstream.bus.kafka.times import entered_at_ns
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.errors import BusError, ConfigError, FormatError
from sdfstream.records.message import Message
from sdfstream.records.position import PARTITION_BITS

LOG_APPEND_TIME: Final = 1


class KafkaSubscription:
    """One member of a consumer group; made by `KafkaBus.subscribe`.

    Notes
    -----
    Counters of the bus: ``delivered`` (topic), ``refused`` (reason), ``lost`` (``group:topic``: offsets that retention
    removed before they were read), ``gap``, ``repeat``, ``jump``, ``clock-set-aside``, ``commit-failed`` (the
    partitions have gone to another member, which reads from the last commit), ``consumer-restarted``.
    """

    def __init__(self, bus: KafkaClient, group: str, topics: tuple[str, ...]) -> None:
        self._bus = bus
        self._group = group
        self._topics = topics
        self._watch = SequenceWatch(bus.counters, group)
        self._consumer: Any = None
        self._next: dict[Any, int] = {}
        """Partition → offset of the next record to give out."""
        self._ends: dict[Any, int] = {}
        self._at_ns: dict[Any, int] = {}
        self._dead_letters: dict[str, list[tuple[ReadRecord, FormatError]]] = {}
        """By topic: what the present read could not decode, on its way to the dead letters."""
        self._progress_s = 0.0

    async def start(self, *, from_start: bool) -> None:
        """Commit a first position where the group has none, then join it."""
        with mapped(f"joining group {self._group}"):
            names = self._names()
            partitions = [TopicPartition(name, p) for name in names for p in await self._bus.partitions_of(name)]
            await commit_first_positions(self._bus.config, self._group, partitions, from_start=from_start)
            self._consumer = await self._join()
        self._bus.decoded.begin(self._group, self._topics)

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """Messages in order of (bus_at_ns, topic, bus_seq) within one call; empty when none came in time."""
        consumer = self._open_consumer()
        with mapped("reading"):
            found = await self._fetched(consumer, max(0, round(timeout_s * 1000)), max_messages)
            if not found:
                await self._check_stalled()
                return []
        self._progress_s = asyncio.get_running_loop().time()
        try:
            messages = [m for p, records in found.items() for r in records if (m := self._message(p, r))]
            await self._publish_dead_letters()
        except BaseException:
            self._rewind(consumer, found)
            raise
        for partition, records in found.items():
            self._next[partition] = records[-1].offset + 1
        messages.sort(key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))
        return messages

    async def commit(self) -> None:
        """Commit the positions behind every message read."""
        consumer = self._open_consumer()
        ours = consumer.assignment()
        done = {p: offset for p, offset in self._next.items() if p in ours}
        if not done:
            return
        try:
            with mapped("committing"):
                await consumer.commit(done)
        except BusError as error:
            if not isinstance(error.__cause__, CommitFailedError | IllegalStateError):
                raise
            self._bus.counters.add("commit-failed", self._group)

    def lag(self) -> int:
        """Records behind this member's positions, by the brokers' last answers."""
        if self._consumer is None:
            return 0
        lag = 0
        for partition in self._consumer.assignment():
            end = max(self._consumer.highwater(partition) or 0, self._ends.get(partition, 0))
            lag += max(0, end - self._next.get(partition, end))
        return lag

    async def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            self._bus.decoded.end(self._group, self._topics)
            await stop(consumer)

    async def _fetched(self, consumer: Any, timeout_ms: int, max_messages: int) -> dict[Any, list[Any]]:
        """Fetch; a position that retention removed moves to the oldest record, and what is gone counts as ``lost``.

        A hole in the offsets is no loss: ends of transactions and compaction leave such by design.
        """
        try:
            found: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=timeout_ms, max_records=max_messages)
            return found
        except OffsetOutOfRangeError as error:
            gone = error.args[0]
        except NoOffsetForPartitionError as error:  # a partition added to the topic later
            gone = {error.args[0]: 0}
        except CorruptRecordException:  # a wrong checksum; the client has dropped what it had of other partitions
            await self._go_back(consumer)
            raise
        begins = await consumer.beginning_offsets(list(gone))
        for partition, offset in gone.items():
            topic = partition.topic.removeprefix(self._bus.config.prefix)
            self._bus.counters.add("lost", f"{self._group}:{topic}", max(0, begins[partition] - offset))
            self._next[partition] = begins[partition]
            consumer.seek(partition, begins[partition])
        return {}

    async def _go_back(self, consumer: Any) -> None:
        """Seek to the next record to give out, in every partition."""
        for partition in consumer.assignment():
            with suppress(IllegalStateError):
                if partition in self._next:
                    consumer.seek(partition, self._next[partition])
                else:
                    await consumer.seek_to_committed(partition)

    def _rewind(self, consumer: Any, found: dict[Any, list[Any]]) -> None:
        """Seek back to the first of the records `found`, which could not be given out."""
        self._dead_letters.clear()
        for partition, records in found.items():
            with suppress(IllegalStateError):
                consumer.seek(partition, records[0].offset)

    def _message(self, partition: Any, record: Any) -> Message | None:
        topic = partition.topic.removeprefix(self._bus.config.prefix)
        read = self._bus.decoded.of(topic, partition.partition, record)
        decoded = read.outcome
        if isinstance(decoded, FormatError):
            self._bus.counters.add("refused", decoded.reason)
            self._set_aside(topic, read, decoded)
            return None
        if decoded.refused_rows:
            self._bus.counters.add("refused", "null-rows", decoded.refused_rows)
            why = FormatError("null-rows", f"{decoded.refused_rows} rows have a null where none may be")
            self._set_aside(topic, read, why)
        by_broker = record.timestamp_type == LOG_APPEND_TIME
        before_ns = self._at_ns.get(partition, 0)
        at_ns, set_aside = entered_at_ns(decoded.bus_at_ns, record.timestamp, by_broker, before_ns)
        self._at_ns[partition] = at_ns
        self._bus.counters.add("clock-set-aside", topic, n=set_aside)
        self._watch.see(topic, read.key, decoded.boot_id, decoded.batch_seq)
        self._bus.counters.add("delivered", topic)
        seq = record.offset | partition.partition << PARTITION_BITS
        return Message(topic, read.key, decoded.body, at_ns, seq, decoded.boot_id, decoded.batch_seq)

    def _set_aside(self, topic: str, read: ReadRecord, why: FormatError) -> None:
        if not dead_letters.is_dead(topic) and not read.has_dead_letter:
            self._dead_letters.setdefault(topic, []).append((read, why))

    async def _publish_dead_letters(self) -> None:
        """Publish those of one read, a topic's together: one by one, a stranger's hundred a second held the reader up.

        Without the right to write there they are only counted (``letter-denied``). Stages and the archive between them
        read every topic and have that right; agents, recorders and operators need not.
        """
        limit, at_ns = self._bus.config.max_message_bytes, self._bus.clock()
        for topic, refused in self._dead_letters.items():
            missing = [(read, why) for read, why in refused if not read.has_dead_letter]
            outputs = [
                fitting.dead_letter(limit, topic, read.key, read.headers, read.value, why, at_ns)
                for read, why in missing
            ]
            try:
                await self._bus.publish(outputs)
                for read, _ in missing:
                    read.has_dead_letter = True
            except ConfigError as error:
                if not isinstance(error.__cause__, TopicAuthorizationFailedError):
                    raise
                self._bus.counters.add("letter-denied", topic + dead_letters.SUFFIX, n=len(outputs))
        self._dead_letters.clear()

    async def _join(self) -> Any:
        consumer = make_consumer(self._bus.config, self._group, reset="none")
        consumer.subscribe(self._names(), listener=Rebalance(consumer, self._watch, self._next))
        try:
            await consumer.start()
            for partition in consumer.assignment() - self._next.keys():
                with suppress(IllegalStateError):  # another member joined meanwhile
                    self._next[partition] = await consumer.position(partition)
        except BaseException:
            await stop(consumer)
            raise
        self._progress_s = asyncio.get_running_loop().time()
        return consumer

    def _names(self) -> list[str]:
        return [self._bus.config.prefix + topic for topic in self._topics]

    async def _check_stalled(self) -> None:
        """Replace the consumer when it got nothing for `stall_s` although the brokers have more."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._progress_s < self._bus.config.stall_s:
            return
        self._progress_s = now_s
        consumer = self._open_consumer()
        ours = consumer.assignment()
        with suppress(KafkaError, TimeoutError):  # an absent broker is no stall; the client tries on by itself
            async with asyncio.timeout(STOP_S):
                self._ends = await consumer.end_offsets(list(ours)) if ours else {}
                at = {partition: await consumer.position(partition) for partition in self._ends}
            if any(end > max(at[partition], self._next.get(partition, 0)) for partition, end in self._ends.items()):
                self._bus.counters.add("consumer-restarted", self._group)
                await stop(consumer)
                self._consumer = await self._join()

    def _open_consumer(self) -> Any:
        if self._consumer is None:
            raise BusError("the subscription is closed")
        return self._consumer
