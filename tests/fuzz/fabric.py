"""``python -m tests.fuzz.fabric ADDRESS``: a small fabric with known faults tells its story to a broker, until ended.

In a process of its own: beside the strangers in one, its messages came late, and what is late is another story.
"""

from __future__ import annotations

import asyncio
import sys
import time

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.message import Output
from tests.fixtures.leafspine import EPOCH, Fabric
from tests.fuzz.stages import FAULTS, SHAPE

MOST_S = 36_000.0


async def main(address: str) -> None:
    """Publish each message when it is due."""
    bus = KafkaBus(KafkaConfig(servers=address, partitions=2), time.time_ns, boot_id="fuzz-fabric")
    await bus.start()
    try:
        began_s = time.monotonic()
        print("running", flush=True)
        for message in Fabric(1, list(FAULTS), SHAPE).messages(MOST_S):
            due_s = (message.bus_at_ns - EPOCH) / 1e9
            await asyncio.sleep(max(0.0, due_s - (time.monotonic() - began_s)))
            await bus.publish([Output(message.topic, message.key, message.body)])
    finally:
        await bus.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
