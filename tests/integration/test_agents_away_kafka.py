"""Agents over loopback whose broker is killed: every row is in the topic once, or is counted where it is not."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sdfstream import settings
from sdfstream.agent.bus_io import open_publisher
from sdfstream.agent.loop_io import run_agent
from sdfstream.agent.publish_io import PublishBuffer
from sdfstream.agent.spill import segment
from sdfstream.agent.spill.folder_io import spill_folder
from sdfstream.bus import codec
from sdfstream.bus.kafka.admin_io import prepare
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.sequences import Numbers, SequenceWatch
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.records.message import Output
from sdfstream.records.topics import LIVENESS, PROBE
from sdfstream.stats import Counters
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka

PORT = 18_640
STARTER = ThreadPoolExecutor(1)
"""A broker dies with the thread that started it."""


@pytest.fixture(scope="module")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that may be killed."""
    with Broker(kafka_jars, tmp_path_factory.mktemp("kafka-away")) as made:
        asyncio.run(prepare(KafkaConfig(servers=made.address)))  # lest a reader's asking make a topic as it must not be
        yield made


def config(host: str, address: str, rate_hz: float, **more: Any) -> AgentConfig:
    """An agent that probes itself: its reflector answers from the same process."""
    session = SessionConfig(f"{host}/0", f"{host}/0", address, PORT, (50_000, 50_001), rate_hz=rate_hz)
    hosts = (HostConfig(host, (NicConfig(f"{host}/0", "lo", address),), (session,), read_ports=False),)
    return AgentConfig(hosts, reflector_port=PORT, realtime=False, **more)


def fresh(name: str) -> str:
    """A host of that name which no earlier attempt at a test has left rows of on the broker."""
    return f"{name}-{uuid.uuid4().hex[:6]}"


@asynccontextmanager
async def running(config: AgentConfig, broker: Broker, boot_id: str) -> AsyncIterator[dict[str, int]]:
    """An agent as `sdfstream agent` runs it; its counters afterwards."""
    stop, final = asyncio.Event(), dict[str, int]()
    async with open_publisher(f"kafka://{broker.address}", boot_id) as publisher:
        more: dict[str, Any] = {"boot_id": boot_id, "numbers": Numbers(), "spill": spill_folder(config)}
        task = asyncio.create_task(run_agent(config, publisher, None, stop, **more))
        try:
            yield final
        finally:
            stop.set()
            final |= await asyncio.wait_for(task, 20)


class Read(NamedTuple):
    key: str
    boot_id: str
    number: int
    body: Any


async def everything(broker: Broker, topic: str) -> list[Read]:
    """All messages of `topic`, in order, repeats included."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.address, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        await consumer.start()
        part = TopicPartition(topic, 0)
        consumer.assign([part])
        end = (await consumer.end_offsets([part]))[part]
        found: list[Read] = []
        while await consumer.position(part) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for r in records:
                    d = codec.decode(topic, r.headers, r.value)
                    found.append(Read(r.key.decode(), d.boot_id, d.batch_seq, d.body))
        return found
    finally:
        await consumer.stop()


def once(read: list[Read]) -> tuple[list[Read], Counters]:
    """Without repeats, as a task reads; and what there was of gaps and repeats."""
    counters = Counters("test")
    watch = SequenceWatch(counters, "g")
    return [r for r in read if watch.see("t", r.key, r.boot_id, r.number)], counters


def rows_in(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(batch.column("path").to_pylist(), batch.column("seq").to_pylist(), strict=True))


async def outage(broker: Broker, seconds: float) -> None:
    broker.kill()
    await asyncio.sleep(seconds)
    await asyncio.get_running_loop().run_in_executor(STARTER, broker.start)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> dict[str, Counter[tuple[int, int]]]:
    """Host → (path, seq) of every row that an agent gave to its buffer."""
    found: dict[str, Counter[tuple[int, int]]] = {}
    put = PublishBuffer.put

    def noting(self: PublishBuffer, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.topic == PROBE.name and isinstance(output.body, pa.RecordBatch):
                found.setdefault(output.key, Counter()).update(rows_in(output.body))
        put(self, outputs)

    monkeypatch.setattr(PublishBuffer, "put", noting)
    return found


async def test_a_broker_that_is_killed_costs_nothing_or_what_is_counted(
    broker: Broker, tmp_path: Path, made: dict[str, Counter[tuple[int, int]]]
) -> None:
    one, other = fresh("away-a"), fresh("away-b")
    large = config(one, "127.0.75.1", 100.0, buffer_bytes=256 << 10, spill_dir=str(tmp_path / "spill"))
    small = config(other, "127.0.75.2", 100.0, buffer_bytes=64 << 10, spill_bytes=0)
    before_ns = time.time_ns()
    async with running(large, broker, "boot-a") as a, running(small, broker, "boot-b") as b:
        await asyncio.sleep(2.0)
        await outage(broker, 10.0)
        await until(lambda: asyncio.sleep(0, not list((tmp_path / "spill").glob("*.spill"))), 60)
        await asyncio.sleep(2.0)
    assert a["agent.spilled.sdf.raw.probe.v1"] > 100
    assert not [name for name in a if ".shed." in name]
    assert b["agent.shed.sdf.raw.probe.v1"] > 100
    read, seen = once(await everything(broker, PROBE.name))
    in_topic: dict[str, Counter[tuple[int, int]]] = {one: Counter(), other: Counter()}
    for message in read:
        in_topic.setdefault(message.key, Counter()).update(rows_in(message.body))
    assert in_topic[one] == made[one], "every row made is there, once"
    assert in_topic[one].total() == a["agent.published.sdf.raw.probe.v1"] > 1500
    assert [r.number for r in read if r.key == one] == list(range(len([r for r in read if r.key == one])))
    assert not in_topic[other] - made[other]
    assert (made[other] - in_topic[other]).total() == b["agent.shed.sdf.raw.probe.v1"]
    assert seen.get("gap", "g:t") > 0, "and whoever reads sees that something is missing"
    times = [t for r in read if r.key == one for t in r.body.column("t1_ns").to_pylist()]
    assert before_ns <= min(times)
    assert max(b - a for a, b in itertools.pairwise(sorted(times))) < 2e9, "rows keep their own times"
    lives, _ = once(await everything(broker, LIVENESS.name))
    numbers = [r.number for r in lives if r.key == one]
    assert numbers == list(range(len(numbers)))


def process(broker: Broker, file: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "sdfstream", "agent", "--config", str(file), "--bus", f"kafka://{broker.address}"]
    with file.with_suffix(".log").open("ab") as log:  # a pipe that nobody reads would stop it
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)


def on_disk(folder: Path) -> Counter[tuple[str, str, int]]:
    """(topic, boot, number) of every whole record that a killed agent left."""
    found: Counter[tuple[str, str, int]] = Counter()
    for path in sorted(folder.glob("*.spill")):
        raw = path.read_bytes()
        for position in segment.scan(raw)[0]:
            output = segment.decode(raw[position.offset : position.offset + position.length])
            found[output.topic, output.boot_id, output.batch_seq] += 1
    return found


async def test_a_killed_agents_spill_arrives_once_under_its_old_numbers(broker: Broker, tmp_path: Path) -> None:
    host = fresh("away-c")
    folder = tmp_path / "spill"
    killed = config(host, "127.0.75.3", 100.0, buffer_bytes=256 << 10, spill_dir=str(folder), clock_pages="off")
    file = tmp_path / "agent.yaml"
    file.write_text(settings.dump(killed))
    first = process(broker, file)
    second = None
    try:
        await until(lambda: rows_of_host(broker, host), 60)
        broker.kill()
        await until(lambda: asyncio.sleep(0, len(list(folder.glob("*.spill"))) >= 2), 60)
        await asyncio.sleep(1.0)
        first.send_signal(signal.SIGKILL)
        first.wait()
        left = on_disk(folder)
        bulk = sorted(number for topic, _, number in left if topic == PROBE.name)
        assert len(bulk) > 5
        second = process(broker, file)  # while the broker is still away
        await asyncio.sleep(2.0)
        await asyncio.get_running_loop().run_in_executor(STARTER, broker.start)
        await until(lambda: asyncio.sleep(0, not list(folder.glob("*.spill"))), 60)
        await until(lambda: boots(broker, host, 2), 60)
    finally:
        for one in (first, second):
            if one is not None:
                one.send_signal(signal.SIGTERM)
                one.wait(20)
        print(file.with_suffix(".log").read_text())
    assert second is not None
    assert second.returncode == 0
    read, _ = once([r for r in await everything(broker, PROBE.name) if r.key == host])
    (old,) = {boot for _, boot, _ in left}
    assert read[0].boot_id == old
    assert [r.number for r in read if r.boot_id == old] == list(range(bulk[-1] + 1)), (
        "once, in order, to the last spilled"
    )
    news = [r.number for r in read if r.boot_id != old]
    assert news == list(range(len(news)))
    lives, _ = once([r for r in await everything(broker, LIVENESS.name) if r.key == host and r.boot_id == old])
    kept = {number for topic, _, number in left if topic == LIVENESS.name}
    assert kept <= {r.number for r in lives}


async def until(true: Callable[[], Awaitable[Any]], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            with suppress(KafkaError):  # a broker that has just come back
                if await true():
                    return
            await asyncio.sleep(0.2)


async def rows_of_host(broker: Broker, host: str) -> int:
    return sum(r.body.num_rows for r in await everything(broker, PROBE.name) if r.key == host)


async def boots(broker: Broker, host: str, n: int) -> bool:
    return len({r.boot_id for r in await everything(broker, PROBE.name) if r.key == host}) >= n
