"""What a task queues is bounded as a whole, and what its merge waits for is fetched all the same."""

from __future__ import annotations

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
        return self.at[partition]


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
