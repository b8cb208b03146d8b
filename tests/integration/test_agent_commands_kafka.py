"""An agent hears its commands from a real broker as it does from the link."""

from __future__ import annotations

import asyncio
import time

import pytest

from sdfstream.agent.bus_io import open_publisher
from sdfstream.agent.downlink_io import downlink_of
from sdfstream.bus.open_io import open_bus
from sdfstream.probes.config import AgentConfig, HostConfig
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.shapes import SHAPES
from sdfstream.records.topics import COMMAND
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.shapes import sample

pytestmark = pytest.mark.kafka


def command(mark: int, host: str) -> Output:
    data = sample(SHAPES[COMMAND.name][COMMAND.name]) | {"mark": mark}
    return Output(COMMAND.name, host, Event(COMMAND.name, "actuate", f"c{mark}", mark, data))


async def test_commands_come_from_now_on(kafka: Broker) -> None:
    name = f"kafka://{kafka.address}"
    bus = await open_bus(name, time.time_ns, boot_id="controller")
    await bus.publish([command(0, "h1")])
    config = AgentConfig(hosts=(HostConfig(f"h1-{time.time_ns()}", ()),), control=True)
    received: list[Message] = []
    # h1-… is an agent of its own, whatever other tests left on this broker
    async with open_publisher(name, "agent") as publisher, downlink_of(config, [publisher]) as downlink:
        assert downlink is not None
        await bus.publish([command(i, "h1") for i in range(1, 4)])
        async with asyncio.timeout(20):
            while len(received) < 3:
                received += await downlink.read(0.2)
    assert [m.body.data["mark"] for m in received if isinstance(m.body, Event)] == [1, 2, 3]
    assert all(m.bus_at_ns > 0 and m.boot_id == "controller" for m in received)
    await bus.close()
