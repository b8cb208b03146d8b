"""Tasks on a real broker that die in the middle of a commit: it is whole or it never was."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from sdfstream.bus.kafka import task_io
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.task import Work
from sdfstream.records.position import offset_of, partition_of
from sdfstream.records.topics import CLOCK, FINDING
from tests.bus_samples import clock, finding
from tests.contract.bus import marks, take
from tests.contract.tasks import read
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka
WORK = Work("echo", (CLOCK.name,))


class DiedError(Exception):
    """Here the process ended."""


class Dying:
    """A producer whose process ends before its `after`-th call, or once the commit is done and nobody heard of it."""

    def __init__(self, producer: Any, after: int) -> None:
        self._producer = producer
        self._left = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def _step(self) -> None:
        if self._left == 0:
            raise DiedError
        self._left -= 1

    async def begin_transaction(self) -> None:
        self._step()
        await self._producer.begin_transaction()

    async def send(self, *args: Any, **given: Any) -> Any:
        self._step()
        return await self._producer.send(*args, **given)

    async def commit_transaction(self) -> None:
        self._step()
        await self._producer.commit_transaction()
        self._step()


@asynccontextmanager
async def bus_on(kafka: Broker, prefix: str) -> AsyncIterator[KafkaBus]:
    bus = KafkaBus(KafkaConfig(servers=kafka.address, prefix=prefix), time.time_ns, boot_id="x")
    await bus.start()
    try:
        yield bus
    finally:
        await bus.close()


async def test_a_commit_is_whole_or_never_was(kafka: Broker) -> None:
    async with bus_on(kafka, f"dying{time.time_ns()}.") as bus:
        reader = await bus.subscribe("ear", [FINDING.name])
        task = await bus.task(WORK)
        said = 0
        # begin, three outputs, a note, the positions, the commit, and after it
        for after in range(8):
            await bus.publish([clock(after)])
            assert marks(await read(task, 1)) == [after]
            task._writer._producer = Dying(task._writer._producer, after)
            with pytest.raises(DiedError):
                await task.commit([finding(100 * after + i) for i in range(3)], notes={"n": b"%d" % after})
            task = await bus.task(WORK)  # the next owner; the former one was never asked to close
            if after < 7:
                assert task.saved.notes.get("n", b"") == (b"%d" % (after - 1) if after else b"")
                assert marks(await read(task, 1)) == [after], "it was not dealt with"
                await task.commit([finding(100 * after + i) for i in range(3)], notes={"n": b"%d" % after})
            assert marks(await take(reader, 3)) == [100 * after + i for i in range(3)]
            said += 3
        assert await reader.read(timeout_s=0.5) == []
        assert task.saved.notes == {"n": b"7"}
        assert said == 24


async def test_units_move_to_who_is_left_and_nothing_is_said_twice(kafka: Broker) -> None:
    prefix = f"moving{time.time_ns()}."
    async with bus_on(kafka, prefix) as bus, bus_on(kafka, prefix) as other:
        reader = await bus.subscribe("ear", [FINDING.name])
        stops = [asyncio.Event(), asyncio.Event()]
        owners: list[int] = []

        def echo(who: int) -> Any:
            async def run(task: Any) -> None:
                owners.append(who)
                while not stops[who].is_set():
                    found = await task.read(timeout_s=0.05)
                    if found:
                        await task.commit([finding(m) for m in marks(found)])

            return run

        first = asyncio.create_task(bus.shared(WORK, echo(0), stops[0], member="a"))
        while not owners:  # noqa: ASYNC110 (what is waited for is no event)
            await asyncio.sleep(0.05)
        second = asyncio.create_task(other.shared(WORK, echo(1), stops[1], member="b"))
        heard: list[int] = []
        for n in range(60):
            await bus.publish([clock(n)])
            if n == 20:
                stops[0].set()
                await asyncio.wait_for(first, 20)
            heard += marks(await reader.read(timeout_s=0.05))
        async with asyncio.timeout(40):
            while len(heard) < 60:
                heard += marks(await reader.read(timeout_s=0.2))
        assert heard == list(range(60))
        assert owners[0] == 0 and owners[-1] == 1
        stops[1].set()
        await asyncio.wait_for(second, 20)
        assert await reader.read(timeout_s=0.5) == []


async def test_whoever_marks_by_itself_keeps_its_marks(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that goes on with its user's notes must not void the user's mark by one of its own."""
    monkeypatch.setattr(task_io, "_MARK_S", 0.0)
    async with bus_on(kafka, f"marking{time.time_ns()}.") as bus:
        task = await bus.task(WORK)
        await bus.publish([clock(0)])
        assert marks(await read(task, 1)) == [0]
        await task.commit(notes={"state": b"0"}, mark=True)
        marked = task.positions()
        for n in (1, 2, 3):
            await bus.publish([clock(n)])
            task = await bus.task(WORK)
            assert task.positions() == marked, "it begins where its user marked"
            assert marks(await read(task, n)) == list(range(1, n + 1))
            await task.commit(notes={f"entry{n}": b""})
        assert (await bus.task(WORK)).saved.notes.keys() == {"state", "entry1", "entry2", "entry3"}


async def test_what_cannot_be_read_has_one_letter_however_often_it_is_read(kafka: Broker) -> None:
    async with bus_on(kafka, f"letters{time.time_ns()}.") as bus:
        task = await bus.task(WORK)
        await task.commit(notes={"s": b""}, mark=True)
        letters = await bus.subscribe("ear", [f"{CLOCK.name}.dlq"])
        await bus.publish([clock(0)])
        await bus.publish_bytes(CLOCK.name, "mesh", [("schema", CLOCK.name.encode())], b"garbage")
        await bus.publish([clock(1)])
        found = await read(task, 2)
        await task.commit(positions={partition_of(found[0]): offset_of(found[0]) + 1})
        assert await letters.read(timeout_s=0.5) == [], "what it stands behind is not dealt with"
        task = await bus.task(WORK)
        assert marks(await read(task, 2)) == [0, 1]
        await task.commit(notes={"entry": b""})
        assert len(await take(letters, 1)) == 1
        task = await bus.task(WORK)
        assert marks(await read(task, 2)) == [0, 1], "once more, from the mark"
        await task.commit()
        assert await letters.read(timeout_s=0.5) == []


async def test_a_wall_clock_that_is_set_does_not_take_bus_time_along(kafka: Broker) -> None:
    shift_ns = [3600 * 10**9]
    config = KafkaConfig(servers=kafka.address, prefix=f"clock{time.time_ns()}.")
    bus = KafkaBus(config, lambda: time.time_ns() + shift_ns[0], boot_id="x")
    await bus.start()
    try:
        task = await bus.task(WORK)
        for hours in (1, -5, 7):
            shift_ns[0] = hours * 3600 * 10**9
            async with asyncio.timeout(20):
                while (known_ns := task.known_until_ns()) is None:
                    await task.read(timeout_s=0.1)
            assert abs(known_ns - time.time_ns()) < 5 * 10**9
            await task.commit(notes={"n": b"%d" % hours})
    finally:
        await bus.close()


async def test_a_task_goes_on_behind_what_the_broker_has_expired(kafka: Broker) -> None:
    """Its position is gone: what is left comes once, and what is gone is counted."""
    async with bus_on(kafka, f"expired{time.time_ns()}.") as bus:
        reader = await bus.subscribe("ear", [FINDING.name])
        task = await bus.task(WORK)
        await bus.publish([clock(0)])
        assert marks(await read(task, 1)) == [0]
        await task.commit([finding(0)])
        await bus.publish([clock(i) for i in range(1, 10)])
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
        await admin.start()
        partition = TopicPartition(bus.config.prefix + CLOCK.name, 0)
        await admin.delete_records({partition: RecordsToDelete(before_offset=7)})
        await admin.close()
        task = await bus.task(WORK)  # a process that was away for longer than the topic's retention
        left = marks(await read(task, 3))
        assert left == [7, 8, 9]
        await task.commit([finding(mark) for mark in left])
        assert marks(await take(reader, 4)) == [0, 7, 8, 9]
        assert await reader.read(timeout_s=0.5) == [], "none twice"
        assert bus.counters.get("lost", f"echo:{CLOCK.name}") == 6
