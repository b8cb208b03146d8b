"""The client on a real broker: what was published between two instants, with nobody's position moved."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.client import Fabric
from sdfstream.errors import ConfigError
from sdfstream.records.message import Output
from sdfstream.records.topics import PROBE
from tests.bus_samples import probe_batch
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka


async def test_a_topic_of_a_bus_is_read_from_its_first_message_to_its_last_of_now(kafka: Broker) -> None:
    config = KafkaConfig(servers=kafka.address, prefix=f"client{time.time_ns()}.")
    bus = KafkaBus(config, time.time_ns, boot_id="agent")
    await bus.start()
    try:
        fabric = Fabric(bus=f"kafka://{kafka.address}", kafka=replace(config))
        empty = await asyncio.to_thread(fabric.topic, PROBE.name)
        assert empty.height == 0
        hosts = [f"h{i:02d}" for i in range(8)]  # over several partitions
        await bus.publish([Output(PROBE.name, host, probe_batch(5, host=host)) for host in hosts])
        await asyncio.sleep(2.5)  # the broker's stamp and the producer's may lie a second apart
        between_ns = time.time_ns()
        await asyncio.sleep(2.5)
        await bus.publish([Output(PROBE.name, host, probe_batch(3, host=host)) for host in hosts])
        await bus.publish_bytes(PROBE.name, "h00", [("schema", PROBE.name.encode())], b"no Arrow")

        whole = fabric.topic(PROBE.name)  # within this running loop, as in a notebook
        assert whole.height == 8 * 8
        assert set(whole["bus_key"]) == set(hosts)
        assert fabric.refused(PROBE.name) == {"arrow-corrupt": 1}
        late = await asyncio.to_thread(fabric.topic, PROBE.name, since=between_ns)
        early = await asyncio.to_thread(fabric.topic, PROBE.name, until=between_ns)
        assert (early.height, late.height) == (8 * 5, 8 * 3)
        assert pl.concat([early, late]).sort("bus_at_ns", "bus_seq").equals(whole.sort("bus_at_ns", "bus_seq"))
    finally:
        await bus.close()


def test_a_bus_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be memory or kafka://"):
        Fabric(tmp_path, bus="localhost:9092").topics()
