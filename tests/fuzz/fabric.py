"""``python -m tests.fuzz.fabric ADDRESS``: a small fabric with known faults tells its story to a broker, until ended.

In a process of its own: beside the strangers in one, its messages came late, and what is late is another story. All
that is due is published together: one by one, a broker that is busy made the story later and later.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from typing import Final

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.message import Message, Output
from tests.fixtures.leafspine import EPOCH, Fabric, Fault
from tests.fuzz.stages import SHAPE

MOST_S: Final = 36_000.0
STORY: Final = (
    Fault(("h01/r0->l0", "l0->h01/r0"), 12, 30, drop=1, nic="h01/r0", port="down"),
    Fault(agent="h03", at_s=14, until_s=80),
)
"""A NIC goes down; an agent is silent for longer than detect ever waits for one that was late lately (63 s)."""
_TURN_S: Final = 0.02


async def main(address: str) -> None:
    """Publish each message when it is due."""
    bus = KafkaBus(KafkaConfig(servers=address, partitions=2), time.time_ns, boot_id="fuzz-fabric")
    await bus.start()
    latest_s = told_s = 0.0
    try:
        began_s = time.monotonic()
        print("running", flush=True)
        for due in _turns(Fabric(1, list(STORY), SHAPE).messages(MOST_S)):
            due_s = (due[-1].bus_at_ns - EPOCH) / 1e9
            await asyncio.sleep(max(0.0, due_s - (time.monotonic() - began_s)))
            await bus.publish([Output(message.topic, message.key, message.body) for message in due])
            now_s = time.monotonic() - began_s
            latest_s = max(latest_s, now_s - due_s)
            if now_s - told_s > 30.0:
                print(f"{now_s:.0f} s: at most {latest_s:.1f} s late", flush=True)
                latest_s, told_s = 0.0, now_s
    finally:
        await bus.close()


def _turns(messages: Iterator[Message]) -> Iterator[list[Message]]:
    """Messages that are due within the same moment."""
    first = next(messages, None)
    while first is not None:
        until_ns = first.bus_at_ns + round(_TURN_S * 1e9)
        due, first = [first], None
        for message in messages:
            if message.bus_at_ns >= until_ns:
                first = message
                break
            due.append(message)
        yield due


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
