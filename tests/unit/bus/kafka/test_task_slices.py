"""A read of a stage that takes slices gives out a slice whole: what comes of the next one meanwhile waits for it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from aiokafka import TopicPartition

from sdfstream.bus import codec
from sdfstream.bus.kafka import task_io
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.decoded import DecodedRecords
from sdfstream.bus.kafka.task_io import KafkaTask
from sdfstream.bus.task import Work
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.slices import SLICE_NS
from sdfstream.records.topics import CLOCK, FINDING
from sdfstream.stats import Counters
from tests.bus_samples import clock
from tests.unit.bus.kafka.test_decoded import Record as Stored

BEGIN_NS = 1_700_000_000 * 10**9
"""Of a slice."""


class Record(Stored):
    """As aiokafka's, with its time."""

    timestamp = BEGIN_NS // 10**6
    timestamp_type = 0


def record(offset: int, after_ns: int, output: Output) -> Record:
    headers, value = codec.encode(output, "boot", offset, bus_at_ns=BEGIN_NS + after_ns)
    return Record(offset, value, tuple(headers), output.key.encode())


class Consumer:
    """Hands out one list of records at each call."""

    def __init__(self, *calls: list[Record], topic: str = CLOCK.name) -> None:
        self.partition = TopicPartition(topic, 0)
        self.calls = list(calls)
        self.at = 0

    async def getmany(self, **_: Any) -> dict[Any, list[Record]]:
        records = self.calls.pop(0) if self.calls else []
        self.at = records[-1].offset + 1 if records else self.at
        return {self.partition: records} if records else {}

    async def position(self, _: Any) -> int:
        return self.at

    def seek(self, _: Any, offset: int) -> None:
        self.at = offset

    def last_stable_offset(self, _: Any) -> int:
        return self.at

    def last_poll_timestamp(self, _: Any) -> int:
        return time.time_ns() // 10**6


class Client:
    """A `KafkaClient` whose clock stands."""

    def __init__(self, now_ns: int) -> None:
        self.config, self.counters, self.decoded = KafkaConfig(), Counters("bus"), DecodedRecords()
        self.now = now_ns

    def clock(self) -> int:
        return self.now


async def task_of(consumer: Consumer, now_ns: int) -> KafkaTask:
    work = Work("detect", (consumer.partition.topic,), slice_ns=SLICE_NS)
    task = KafkaTask(Client(now_ns), work, 0, None, consumer)  # type: ignore[arg-type]
    await task._partitions.open({(consumer.partition.topic, 0): 0}, {})
    return task


def numbers(messages: list[Message]) -> list[int]:
    return [message.batch_seq for message in messages]


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found: list[float] = []

    async def rest(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(task_io.asyncio, "sleep", rest)
    return found


async def test_a_slice_is_given_out_whole_and_nothing_of_the_next(rests: list[float]) -> None:
    first, second, third = (record(n, at, clock(n)) for n, at in enumerate((0, SLICE_NS - 1, SLICE_NS)))
    # the client hands on what came first, and asks for more only then
    task = await task_of(Consumer([first], [], [second, third]), BEGIN_NS + SLICE_NS // 5)
    assert numbers(await task.read()) == [0, 1]
    assert rests == [pytest.approx(SLICE_NS * 4 / 5 / 1e9 + task_io._LATE_S)]
    assert task.positions() == {(CLOCK.name, 0): 2}
    assert numbers(await task.read()) == [2]


async def test_what_is_urgent_ends_the_wait(rests: list[float]) -> None:
    finding = Output(FINDING.name, "k", Event("later", "detect", "x", 1, {}))
    task = await task_of(Consumer([record(0, 0, finding)], topic=FINDING.name), BEGIN_NS)
    assert numbers(await task.read()) == [0] and not rests
