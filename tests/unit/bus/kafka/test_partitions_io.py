"""What a task queues is bounded as a whole; what its merge waits for is fetched all the same; all is in bus order."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from aiokafka import TopicPartition

from sdfstream.bus.kafka import partitions_io
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.partitions_io import MergedPartitions
from sdfstream.records.topics import CLOCK

MIB = 1 << 20
OURS = [(CLOCK.name, number) for number in range(4)]


class Record(NamedTuple):
    """As aiokafka's, the fields that count."""

    offset: int
    value: bytes
    timestamp: int = 1
    timestamp_type: int = 0
    headers: tuple[()] = ()


class Consumer:
    """Has one record of each size in `sizes` for each partition, again and again; those paused get none."""

    def __init__(self, sizes: dict[int, int]) -> None:
        self.sizes = sizes
        self.at: dict[Any, int] = {}
        self.paused: set[Any] = set()
        self.polled_ms: dict[int, int] = {}
        """Of partitions that were not asked for just now."""
        self.stable: dict[int, int] = {}
        """Of partitions of which there is more than was fetched."""

    async def getmany(self, **_: Any) -> dict[Any, list[Record]]:
        found = {}
        for number, size in self.sizes.items():
            partition = TopicPartition(CLOCK.name, number)
            if size and partition not in self.paused:
                found[partition] = [Record(self.at[partition], bytes(size))]
                self.at[partition] += 1
        return found

    async def position(self, partition: Any) -> int:
        return self.at[partition]

    def seek(self, partition: Any, offset: int) -> None:
        self.at[partition] = offset

    def pause(self, partition: Any) -> None:
        self.paused.add(partition)

    def resume(self, partition: Any) -> None:
        self.paused.discard(partition)

    def last_stable_offset(self, partition: Any) -> int:
        return self.stable.get(partition.partition, self.at[partition])

    def last_poll_timestamp(self, partition: Any) -> int:
        return self.polled_ms.get(partition.partition, time.time_ns() // 1_000_000)


async def opened(sizes: dict[int, int]) -> tuple[Consumer, MergedPartitions]:
    consumer = Consumer(sizes)
    partitions = MergedPartitions(consumer, KafkaConfig(), lambda *_: None)
    await partitions.open(dict.fromkeys(OURS, 0), {})
    return consumer, partitions


async def test_a_task_that_is_behind_holds_a_bounded_part_of_its_backlog() -> None:
    consumer, partitions = await opened({0: MIB, 1: MIB, 2: MIB, 3: 0})
    for _ in range(50):
        await partitions.fetch(0)
    queued = sum(partitions._merge.bytes.values())
    assert queued <= partitions_io.TASK_BYTES + 4 * MIB
    assert {p.partition for p in consumer.paused} == {0, 1, 2}


async def test_it_goes_on_once_that_is_taken_and_with_what_is_lacking_at_once() -> None:
    consumer, partitions = await opened({0: MIB, 1: MIB, 2: MIB, 3: 1000})
    for _ in range(50):
        await partitions.fetch(0)
    assert {p.partition for p in consumer.paused} == {0, 1, 2}, "little of one is no reason"
    while partitions.take(4, 16 * MIB):
        pass
    await partitions.fetch(0)
    assert not consumer.paused
    assert all(partitions._merge.waiting(partition) for partition in OURS)


async def with_records(times_ms: dict[int, int]) -> tuple[Consumer, MergedPartitions]:
    """One record of that time in each of these partitions, fetched."""
    consumer, partitions = await opened(dict.fromkeys(times_ms, 100))
    found = {TopicPartition(CLOCK.name, number): [Record(0, b"", at_ms)] for number, at_ms in times_ms.items()}
    consumer.at |= dict.fromkeys(found, 1)
    for partition, records in found.items():
        ours = (CLOCK.name, partition.partition)
        partitions._merge.put(ours, [partitions._queued(ours, record) for record in records])
        partitions._reached[ours] = 1
    partitions.set_broker_time(time.time_ns())
    return consumer, partitions


def given(taken: Any) -> list[int]:
    return [number for (_, number), _ in taken]


async def test_an_old_answer_holds_back_what_is_younger_and_no_more() -> None:
    """Also where the partition was read to its end, and of what the one call takes."""
    now_ms = time.time_ns() // 1_000_000
    consumer, partitions = await with_records({0: now_ms - 5000, 1: now_ms - 4000, 2: now_ms - 1000})
    consumer.polled_ms[0] = now_ms - 3000
    assert given(partitions.take(10, MIB)) == [0, 1]
    assert partitions.take(10, MIB) == [] and partitions.held_back()
    consumer.polled_ms[0] = now_ms - 900
    assert given(partitions.take(10, MIB)) == [2]


async def test_time_is_known_up_to_the_next_message_that_is_queued() -> None:
    now_ms = time.time_ns() // 1_000_000
    consumer, partitions = await with_records({0: now_ms - 900, 2: now_ms - 500})
    assert partitions.known_until_ns() == (now_ms - 900) * 10**6 - 1
    assert given(partitions.take(10, MIB, before_ns=(now_ms - 500) * 10**6)) == [0], "the other is of that instant"
    assert partitions.known_until_ns() == (now_ms - 500) * 10**6 - 1
    consumer.polled_ms[1] = now_ms - 3000
    assert partitions.known_until_ns() < (now_ms - 2900) * 10**6  # type: ignore[operator]
    consumer.stable[3] = 5
    assert partitions.known_until_ns() is None, "there is more of that one"


async def test_one_that_is_behind_holds_all_back_and_others_go_on_without_it_until_it_is_answered() -> None:
    now_ms = time.time_ns() // 1_000_000
    consumer, partitions = await with_records({0: now_ms - 5000, 2: now_ms - 1000})
    consumer.stable[1], consumer.polled_ms[1] = 5, now_ms - 50
    assert partitions.take(10, MIB) == []
    partitions.give_up()
    assert given(partitions.take(1, MIB)) == [0]
    consumer.polled_ms[1] = now_ms
    assert partitions.take(10, MIB) == []
    partitions.give_up()
    assert given(partitions.take(10, MIB)) == [2] and not partitions.held_back()
