"""The archive on the real buses: taken away at random moments, each row goes in once, and soon."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.task import Work
from sdfstream.records import columns
from sdfstream.records.message import Output
from sdfstream.records.topics import ARCHIVED, CLOCK, NIC, PROBE
from tests.fixtures.archive import EVENTS, bulk, event
from tests.fixtures.kafka_broker import Broker

WORK = Work("archive", tuple(ARCHIVED), from_start=True)
SEED = 20261121


@asynccontextmanager
async def memory() -> AsyncIterator[Any]:
    bus = MemoryBus(time.time_ns, boot_id="agents")
    yield bus
    await bus.close()


@asynccontextmanager
async def on_kafka(kafka: Broker) -> AsyncIterator[Any]:
    config = KafkaConfig(servers=kafka.address, prefix=f"archive{time.time_ns()}.")
    bus = KafkaBus(config, time.time_ns, boot_id="agents")
    await bus.start()
    yield bus
    await bus.close()


def outputs(number: int) -> list[Output]:
    """Rows of three topics; every third event is one that the archive refuses."""
    rng = np.random.default_rng([SEED, number])
    data = EVENTS[NIC.name] if number % 3 else {"nic": "h00/r0"}
    return [
        Output(PROBE.name, f"h{number % 5:02d}", _probes(f"h{number % 5:02d}", rng)),
        Output(CLOCK.name, "mesh", bulk(CLOCK, 7, rng)),
        Output(NIC.name, "h00/r0", event(NIC, data, number).body),
    ]


def _probes(host: str, rng: np.random.Generator) -> pa.RecordBatch:
    """Random rows of one host: readers refuse rows of another than the message's."""
    rows = bulk(PROBE, 200, rng)
    return rows.set_column(0, rows.schema.field(0), columns.name_column(np.zeros(200, np.int32), [f"{host}/r0"]))


async def taken_away(bus: Any, work: ArchiveWork, turns: int) -> int:
    """Publish while the archive's task is taken away again and again, then let it finish; messages sent per topic."""
    rng = np.random.default_rng(SEED)
    sent = 0
    for _ in range(turns):
        task = await bus.task(WORK, 0)  # whoever had it can commit no more
        running = asyncio.create_task(work.run(task, asyncio.Event()))
        for _ in range(int(rng.integers(3, 12))):
            await bus.publish(outputs(sent))
            sent += 1
            await asyncio.sleep(rng.uniform(0, 0.05))
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        if rng.random() < 0.5:
            await task.close()
    stop, task = asyncio.Event(), await bus.task(WORK, 0)
    running = asyncio.create_task(work.run(task, stop))
    async with asyncio.timeout(60):
        while task.lag() or work.oldest_ns is not None or not work.counters.get("messages"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    stop.set()
    await running
    await task.close()
    return sent


def check(target: str, sent: int) -> None:
    with Engine.open(target) as engine:
        for table, rows in (("raw_probe", 200), ("state_clock", 7)):
            found = engine.rows(f"SELECT count(), uniqExact(bus_seq) FROM {table}")
            assert found == [(rows * sent, sent)], table
        good = sum(1 for n in range(sent) if n % 3)
        assert engine.rows("SELECT count(), uniqExact(bus_seq) FROM state_nic") == [(good, good)]
        # in process the archive is the first to decode them; on Kafka its reader does, and they are dead letters
        ((refused, once),) = engine.rows("SELECT count(), uniqExact(bus_seq) FROM reject")
        assert refused == once
        assert refused in (0, sent - good)


async def _run(bus: Any, folder: Path, turns: int) -> None:
    target = str(folder)
    work = ArchiveWork.open(ArchiveConfig(target, "bus-1", BatchLimits(rows=1000, age_ms=30)))
    try:
        sent = await taken_away(bus, work, turns)
        check(target, sent)
        assert work.counters.total("lost") == work.counters.total("kept") == 0
        assert work.counters.total("redone") > 0
    finally:
        work.close()


async def test_in_process(archive_folder: Path) -> None:
    async with memory() as bus:
        await _run(bus, archive_folder, 12)


@pytest.mark.kafka
async def test_on_kafka(kafka: Broker, archive_folder: Path) -> None:
    async with on_kafka(kafka) as bus:
        await _run(bus, archive_folder, 8)


@pytest.mark.kafka
async def test_rows_are_visible_soon(kafka: Broker, archive_folder: Path) -> None:
    """With the limits of live use, from publishing to SQL."""
    target = str(archive_folder)
    work = ArchiveWork.open(ArchiveConfig(target, "bus-1"))
    ages_s: list[float] = []
    async with on_kafka(kafka) as bus:
        task, stop = await bus.task(WORK, 0), asyncio.Event()
        running = asyncio.create_task(work.run(task, stop))
        with Engine.open(target) as engine:
            published_s: dict[int, float] = {}
            seen = 0
            for number in range(60):
                await bus.publish(outputs(number))
                published_s[number] = time.monotonic()
                await asyncio.sleep(0.1)
                ((now_there,),) = await asyncio.to_thread(engine.rows, "SELECT uniqExact(bus_seq) FROM state_clock")
                ages_s += [time.monotonic() - published_s[n] for n in range(seen, now_there)]
                seen = now_there
        stop.set()
        await running
        await task.close()
    work.close()
    assert len(ages_s) > 20
    print(f"freshness: median {np.median(ages_s):.2f} s, largest {max(ages_s):.2f} s of {len(ages_s)}")
    assert np.median(ages_s) < 5
