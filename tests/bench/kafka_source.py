"""Agents of a simulated mesh on a real bus, for `kafka_pipeline`: everything made before, then sent at its time.

Says ``ready`` once everything is made and waits for a line; says ``warm`` when the first seconds have been sent, and
at the end one line of JSON with what was sent. Every agent publishes on its own, as agents do: it waits for the brokers
to have its last message, and for no other agent's. They share one connection, so that what is due within a few
milliseconds travels together; connections of their own would cost the broker a request each.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict

import numpy as np
import uvloop

from sdfstream.bus import Bus
from sdfstream.bus.open_io import open_bus
from sdfstream.records.message import Message, Output
from tests.bench.probe_load import EPOCH_NS, Load, messages


def main() -> None:
    bus, warm_s, load = sys.argv[1], float(sys.argv[2]), Load(**json.loads(sys.argv[3]))
    uvloop.run(_run(bus, warm_s, list(messages(load, np.random.default_rng(1)))))


async def _run(name: str, warm_s: float, given: list[Message]) -> None:
    bus = await open_bus(name, time.time_ns, boot_id="agents")
    by_agent: dict[str, list[Message]] = defaultdict(list)
    for message in given:
        by_agent[message.key].append(message)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as group:
        warm = group.create_task(_say_warm(began_s + warm_s))
        late_s = [group.create_task(_publish(bus, began_s, own)) for own in by_agent.values()]
    assert warm.done()
    counted = [m.rows for m in given if _due_s(m) > warm_s]
    said = {"rows": sum(m.rows for m in given), "counted": sum(counted), "messages": len(counted)}
    print(json.dumps({**said, "late_s": round(max(task.result() for task in late_s), 2)}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # its CPU time can be read until then
    await bus.close()


async def _say_warm(at_s: float) -> None:
    await asyncio.sleep(max(0.0, at_s - time.monotonic()))
    print("warm", flush=True)


async def _publish(bus: Bus, began_s: float, own: list[Message]) -> float:
    """Publish an agent's messages, each at its time; the most by which it was late, s."""
    late_s = 0.0
    for message in own:
        wait_s = began_s + _due_s(message) - time.monotonic()
        late_s = max(late_s, -wait_s)
        await asyncio.sleep(max(0.0, wait_s))
        await bus.publish([Output(message.topic, message.key, message.body)])
    return late_s


def _due_s(message: Message) -> float:
    return (message.bus_at_ns - EPOCH_NS) / 1e9


if __name__ == "__main__":
    main()
