"""What it costs a stage to say things exactly once: transactions against an idempotent producer, on a real broker.

Every cycle hands over what a stage's commit hands over: some outputs of two topics and a small record of the positions.
The idempotent producer waits for its acknowledgements; the transactional one also begins and commits. A reader that is
``read_committed`` stands at the far end of both.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.groups_io import make_consumer
from sdfstream.bus.kafka.producer_io import idempotent, transactional
from tests.bench.harness import Result, SkippedError, main, usage
from tests.fixtures.kafka_broker import Broker, BrokerUnavailableError, jars

OUTPUTS, BYTES = 6, 60_000
"""Records of one commit, and their size: a stage that corrects 5,000 exchanges."""


async def measure(broker: Broker, seconds: float, every_s: float) -> dict[str, dict[str, float]]:
    """Latency of a cycle in ms and CPU of client and broker per cycle in ms, by producer."""
    config = KafkaConfig(servers=broker.address)
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.address)
    await admin.start()
    names = ["owd", "state", "checkpoint"]
    await admin.create_topics([NewTopic(n, 1, 1) for n in names])
    await admin.close()
    results = {}
    for kind, make in (("idempotent", idempotent), ("transactions", transactional)):
        producer = await (make(config) if make is idempotent else make(config, "bench/0of1"))  # type: ignore[call-arg]
        reader = make_consumer(config, f"bench-{kind}")
        reader.subscribe(names)
        await reader.start()
        reading = asyncio.create_task(_read(reader))
        try:
            await _cycles(producer, kind, 2.0, every_s)  # connections, coordinators
            results[kind] = await _cycles(producer, kind, seconds, every_s, broker)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await reader.stop()
            await producer.stop()
    return results


async def _read(reader: Any) -> None:
    while True:
        await reader.getmany(timeout_ms=200)


async def _cycles(
    producer: Any, kind: str, seconds: float, every_s: float, broker: Broker | None = None
) -> dict[str, float]:
    payload, took_ms = os.urandom(BYTES), []
    before = _cpu_s(broker)
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.monotonic()
        if kind == "transactions":
            await producer.begin_transaction()
        sent = [await producer.send(("owd", "state")[i % 2], payload, key=b"h00") for i in range(OUTPUTS)]
        sent.append(await producer.send("checkpoint", b"{}" * 300, key=b"stage/0of1|@at|0"))
        await asyncio.gather(*sent)
        if kind == "transactions":
            await producer.commit_transaction()
        took_ms.append(1e3 * (time.monotonic() - began_s))
        await asyncio.sleep(max(0.0, every_s - (time.monotonic() - began_s)))
    client_s, broker_s = (a - b for a, b in zip(_cpu_s(broker), before, strict=True))
    n = len(took_ms)
    return {
        "cycles": n,
        "p50_ms": round(statistics.median(took_ms), 2),
        "p99_ms": round(sorted(took_ms)[int(0.99 * n)], 2),
        "client_cpu_ms": round(1e3 * client_s / n, 2),
        "broker_cpu_ms": round(1e3 * broker_s / n, 2),
    }


def _cpu_s(broker: Broker | None) -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    theirs = usage(broker.pid).cpu_s if broker is not None and broker.pid is not None else 0.0
    return used.ru_utime + used.ru_stime, theirs


def run(result: Result, quick: bool) -> None:
    """Both producers, at a stage's usual pace."""
    cache = Path(os.environ.get("SDFSTREAM_KAFKA_JARS") or ".cache/kafka")
    try:
        with tempfile.TemporaryDirectory() as folder, Broker(jars(cache), Path(folder)) as broker:
            found = asyncio.run(measure(broker, 4.0 if quick else 15.0, 0.05))
    except BrokerUnavailableError as missing:
        raise SkippedError(str(missing)) from missing
    for kind, figures in found.items():
        line = f"{kind}: " + ", ".join(f"{name} {value}" for name, value in figures.items())
        result.say(line, **{f"{kind}_{name}": value for name, value in figures.items()})


if __name__ == "__main__":
    main("producing", run)
