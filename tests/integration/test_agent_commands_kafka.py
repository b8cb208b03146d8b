"""An agent hears its commands from a real broker as it does from the link."""

from __future__ import annotations

import asyncio
import time

import pytest

from sdfstream.bus.open_io import open_bus
from sdfstream.cli.agent_run import open_commands
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import COMMAND
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka


def command(mark: int, host: str) -> Output:
    return Output(COMMAND.name, host, Event(COMMAND.name, "actuate", f"c{mark}", mark, {"mark": mark}))


async def test_commands_for_its_hosts_from_now_on(kafka: Broker) -> None:
    name = f"kafka://{kafka.address}"
    bus = await open_bus(name, time.time_ns, boot_id="controller")
    await bus.publish([command(0, "h1")])
    async with open_commands(name, "boot-1", ["h1", "h3"]) as one, open_commands(name, "boot-2", ["h2"]) as two:
        await bus.publish([command(i, f"h{i}") for i in range(1, 4)])
        heard: dict[int, list[Message]] = {1: [], 2: []}
        async with asyncio.timeout(20):
            while len(heard[1]) < 2 or len(heard[2]) < 1:
                heard[1] += await one.read(0.2)
                heard[2] += await two.read(0.2)
    assert [(m.key, m.body.data["mark"]) for m in heard[1] if isinstance(m.body, Event)] == [("h1", 1), ("h3", 3)]
    assert [m.key for m in heard[2]] == ["h2"]
    assert all(m.bus_at_ns > 0 and m.boot_id == "controller" for m in heard[1])
    await bus.close()
