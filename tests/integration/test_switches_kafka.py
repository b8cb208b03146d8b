"""``sdfstream switches`` on a real broker: gnmic's events in, rows of ports out, each at least once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.cli import main
from sdfstream.errors import BusError
from sdfstream.records.message import Output
from sdfstream.records.switches import is_switch
from sdfstream.records.topics import PORT
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.switches_io import NAME, SwitchFeed
from tests.fixtures.gnmic_events import T0_NS, VENDORS, sample
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka
S = 1_000_000_000


class World:
    """A bus of its own, gnmic's topic beside it, and gnmic."""

    def __init__(self, broker: Broker, topic: str, bus: KafkaBus, gnmic: Any) -> None:
        self.broker, self.topic, self.bus, self.gnmic = broker, topic, bus, gnmic
        self.control = RunControl(drain=False)

    async def write(self, *raws: bytes, partition: int = 0) -> None:
        for raw in raws:
            await self.gnmic.send_and_wait(self.topic, raw, partition=partition)

    def feed(self, bus: Any = None) -> SwitchFeed:
        return SwitchFeed(bus or self.bus, self.bus.config, self.topic, self.control, time.time_ns)

    async def committed(self) -> int | None:
        group = self.bus.config.prefix + NAME
        consumer = AIOKafkaConsumer(bootstrap_servers=self.broker.address, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            found: int | None = await consumer.committed(TopicPartition(self.topic, 0))
        finally:
            await consumer.stop()
        return found

    async def rows(self, at_least: int) -> list[dict[str, Any]]:
        """Rows on the bus from its beginning, once there are so many, without nulls."""
        reader = await self.bus.subscribe(f"seen-{time.time_ns()}", [PORT.name], from_start=True)
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(30):
            while len(found) < at_least:
                for message in await reader.read(timeout_s=0.2):
                    assert is_switch(message.boot_id)
                    assert isinstance(message.body, pa.RecordBatch)
                    found += message.body.to_pylist()
        await reader.close()
        return [{k: v for k, v in row.items() if v is not None} for row in found]


@asynccontextmanager
async def world(broker: Broker, partitions: int = 1) -> AsyncIterator[World]:
    name = f"t{time.time_ns()}"
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    await admin.create_topics([NewTopic(f"gnmic-{name}", partitions, 1)])
    await admin.close()
    bus = KafkaBus(KafkaConfig(servers=broker.address, prefix=f"{name}."), time.time_ns, boot_id=name)
    await bus.start()
    gnmic = AIOKafkaProducer(bootstrap_servers=broker.address, compression_type="gzip")
    await gnmic.start()
    try:
        yield World(broker, f"gnmic-{name}", bus, gnmic)
    finally:
        await gnmic.stop()
        await bus.close()


async def test_the_verb_brings_counters_of_several_vendors_in(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world(kafka, partitions=2) as w:
        for i, vendor in enumerate(VENDORS):
            for turn in range(2):
                raws = VENDORS[vendor](vendor, "Ethernet1/1", T0_NS + turn * S, 1000 * turn, turn)
                await w.write(*raws, partition=i % 2)
        await w.write(b"no JSON")
        file = tmp_path / "settings.json"
        file.write_text(json.dumps({"kafka": {"prefix": w.bus.config.prefix}}))
        words = ["switches", "--bus", f"kafka://{kafka.address}", "--topic", w.topic, "--config", str(file), "--json"]
        assert await asyncio.to_thread(run_verb, [*words, "--from-start", "--seconds", "6"]) == 0
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        rows = await w.rows(8)
    assert (result["rows"], result["refused"]) == (8, 1)
    assert result["counters"]["switches.refused.json"] == 1
    assert len(rows) == 8
    for vendor in VENDORS:
        mine = [r for r in rows if r["host"] == vendor]
        assert [r["rx_bytes"] for r in mine] == [0, 1000]
        assert [r["rx_errors"] for r in mine] == [0, 1]
        assert {(r["nic"], r["state"], r["speed_mbps"]) for r in mine} == {(f"{vendor}/Ethernet1/1", "up", 400_000)}


def run_verb(words: list[str]) -> int:
    """The verb in a thread: signals are the main thread's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sdfstream.runtime.switches_io.stop_on_signals", lambda _: None)
        return main(words)


class FailingBus:
    """Takes `most` publications, then the brokers are away."""

    def __init__(self, bus: KafkaBus, most: int) -> None:
        self.bus, self.most = bus, most

    async def publish(self, outputs: list[Output]) -> None:
        if outputs:
            self.most -= 1
            if self.most < 0:
                raise BusError("away")
        await self.bus.publish(outputs)


async def test_positions_are_committed_only_behind_rows_that_are_out(kafka: Broker) -> None:
    async with world(kafka) as w:
        feed = w.feed(FailingBus(w.bus, 1))
        opened = [await feed.open(from_start=True)]
        await w.write(*(sample("l0", "e1", T0_NS + i * S, in_octets=i) for i in range(3)))
        # the first two samples are whole at once; the third goes on for a second, and then the brokers are away
        with pytest.raises(BusError):
            await asyncio.wait_for(feed.serve(opened), 30)
        assert [r["rx_bytes"] for r in await w.rows(2)] == [0, 1]
        assert await w.committed() == 2, "the third sample is not out"
        again = w.feed()
        running = asyncio.create_task(again.serve([]))
        rows = await w.rows(3)
        w.control.stop.set()
        await asyncio.wait_for(running, 30)
        assert [r["rx_bytes"] for r in rows] == [0, 1, 2], "nothing is lost, and here nothing came twice"
        assert await w.committed() == 3


async def test_a_stop_in_mid_sample_loses_nothing(kafka: Broker) -> None:
    async with world(kafka) as w:
        feed = w.feed()
        running = asyncio.create_task(feed.serve([await feed.open(from_start=True)]))
        await w.write(sample("l0", "e1", T0_NS, in_octets=7))
        async with asyncio.timeout(30):
            while not feed.counters.get("messages"):  # noqa: ASYNC110 (a counter sets no event)
                await asyncio.sleep(0.05)
        w.control.stop.set()
        await asyncio.wait_for(running, 30)
        assert [r["rx_bytes"] for r in await w.rows(1)] == [7]
        assert await w.committed() == 1


async def test_a_second_process_takes_over_what_the_first_did_not_bring_out(kafka: Broker) -> None:
    async with world(kafka, partitions=2) as w:
        first, second = w.feed(), w.feed()
        running = [asyncio.create_task(first.serve([await first.open(from_start=True)]))]
        wanted = set()
        for i in range(20):
            await w.write(sample("l0", f"e{i}", T0_NS + i * S, in_octets=i), partition=i % 2)
            wanted.add(f"l0/e{i}")
            if i == 8:
                running.append(asyncio.create_task(second.serve([await second.open()])))
            await asyncio.sleep(0.1)
        async with asyncio.timeout(60):
            while {r["nic"] for r in await w.rows(1)} != wanted:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        w.control.stop.set()
        await asyncio.wait_for(asyncio.gather(*running), 30)


async def test_without_the_topic_the_verb_says_so(kafka: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["switches", "--bus", f"kafka://{kafka.address}", "--topic", f"none-{time.time_ns()}"]
    assert await asyncio.to_thread(run_verb, words) == 2
    assert "the brokers have no topic 'none-" in capsys.readouterr().err
