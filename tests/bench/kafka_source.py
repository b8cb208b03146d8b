"""Agents of a simulated mesh on a real bus, for `kafka_pipeline`: everything made before, then sent at its time.

Says ``ready`` once everything is made and waits for a line; says ``warm`` when the first seconds have been sent, and
at the end one line of JSON with what was sent.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import numpy as np

from sdfstream.bus.open_io import open_bus
from sdfstream.records.message import Message, Output
from tests.bench.probe_load import EPOCH_NS, Load, messages


def main() -> None:
    bus, warm_s, load = sys.argv[1], float(sys.argv[2]), Load(**json.loads(sys.argv[3]))
    asyncio.run(_run(bus, warm_s, list(messages(load, np.random.default_rng(1)))))


async def _run(name: str, warm_s: float, given: list[Message]) -> None:
    bus = await open_bus(name, time.time_ns, boot_id="agents")
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    began_s = time.monotonic()
    rows = counted = late_s = 0.0
    warm = False
    for message in given:
        due_s = (message.bus_at_ns - EPOCH_NS) / 1e9
        if due_s > warm_s and not warm:
            warm = True
            print("warm", flush=True)
        wait_s = began_s + due_s - time.monotonic()
        late_s = max(late_s, -wait_s)
        await asyncio.sleep(max(0.0, wait_s))
        await bus.publish([Output(message.topic, message.key, message.body)])
        rows += message.rows
        counted += message.rows if warm else 0
    print(json.dumps({"rows": rows, "counted": counted, "late_s": round(late_s, 2)}), flush=True)
    await asyncio.to_thread(sys.stdin.readline)  # its CPU time can be read until then
    await bus.close()


if __name__ == "__main__":
    main()
