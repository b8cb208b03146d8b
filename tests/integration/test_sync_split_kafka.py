"""Sync in parts on a real broker: members of one group share the hosts, and each hears all beliefs."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, EDGE, OWD
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.score.clock.sim import mesh
from sdfstream.serve.stages_io import serve
from sdfstream.settings import Settings
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka
CLOCKS, WITHIN_S = 8, 60.0


async def test_two_parts_and_a_mesh_share_the_hosts(kafka: Broker) -> None:
    config = KafkaConfig(servers=kafka.address, prefix=f"parts{time.time_ns()}.", partitions=4)
    async with AsyncExitStack() as stack:
        buses = []
        for name in ("agents", "a", "b", "mesh"):
            bus = KafkaBus(config, time.time_ns, boot_id=name)
            await bus.start()
            stack.push_async_callback(bus.close)
            buses.append(bus)
        controls = [RunControl(drain=False) for _ in range(3)]
        stages = (["sync-edge"], ["sync-edge"], ["sync-mesh"])
        running = [
            asyncio.create_task(serve(bus, Settings(), names, control, bus_id="b", commits=CommitPolicy()))
            for bus, names, control in zip(buses[1:], stages, controls, strict=True)
        ]
        try:
            await told(buses[0])
        finally:
            for control in controls:
                control.stop.set()
            ends = await asyncio.wait_for(asyncio.gather(*running), 20.0)
    # one that joined late on a busy machine may have had no unit in time
    assert sum(counters.get("sync-edge.received", 0) for counters in ends[:2]) > 0, ends
    assert ends[2]["sync-mesh.received"] > 0
    assert not any(".refused" in counter or counter.startswith("pipeline.restarted") for end in ends for counter in end)


async def told(bus: KafkaBus) -> None:
    """Hosts' probes in their own time, until all units spoke, all clocks are synced and all hosts' delays were seen."""
    reader = await bus.subscribe("test", [CLOCK.name, EDGE.name, OWD.name])
    messages = mesh(CLOCKS, 4, "A", 16.0, seed=1).messages(WITHIN_S)
    hosts, synced, parts, began_s = {m.key for m in messages}, set(), set(), time.monotonic()
    for message in messages:
        await asyncio.sleep((message.bus_at_ns - messages[0].bus_at_ns) / 1e9 - (time.monotonic() - began_s))
        await bus.publish([Output(message.topic, message.key, message.body)])
        for seen in await reader.read(timeout_s=0.0):
            if seen.topic == OWD.name:
                hosts.discard(seen.key)
            elif seen.topic == EDGE.name:
                parts.add(seen.key)
            else:
                synced |= {row["clock"] for row in seen.body.to_pylist() if row["status"] == "synced"}
        if not hosts and len(synced) == CLOCKS and len(parts) == 4:
            return
    raise AssertionError(f"synced: {synced}; parts: {parts}; no delays of {hosts}")
