"""``sdfstream up`` on a real broker: its archive goes on where it ended, and ends although agents go on talking."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from sdfstream.archive.engine_io import Engine
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.message import Output
from sdfstream.records.topics import PROBE
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.leafspine import EPOCH, Fabric, Shape
from tests.integration.test_runtime_record_kafka import verb

pytestmark = pytest.mark.kafka
WITHIN_S = 60.0


async def talk(bus: KafkaBus, sent: Counter[str], stop: asyncio.Event) -> None:
    """Agents' messages in their own time until `stop`; `sent` counts rows that the broker has."""
    began_s = time.monotonic()
    fabric = Fabric(1, shape=Shape(hosts=2, ports=1, rate_hz=8.0, owd=False, clocks=False))
    for message in fabric.messages(600.0):
        await asyncio.sleep((message.bus_at_ns - EPOCH) / 1e9 - (time.monotonic() - began_s))
        await bus.publish([Output(message.topic, message.key, message.body)])
        sent[message.topic] += message.rows
        if stop.is_set():  # not in the middle of a message, which the broker may have or not
            return


def said(log: Path) -> str:
    return log.read_text()


async def started(log: Path, running: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(WITHIN_S):
        while "running;" not in said(log):
            assert running.returncode is None, said(log)
            await asyncio.sleep(0.1)


async def test_its_archive_has_every_row_once_after_kill_9_and_after_an_end_in_order(
    kafka: Broker, tmp_path: Path
) -> None:
    prefix = f"up{time.time_ns()}."
    config = KafkaConfig(servers=kafka.address, prefix=prefix)
    file, log = tmp_path / "up.json", tmp_path / "up.log"
    file.write_text(json.dumps({"bus": f"kafka://{kafka.address}", "kafka": {"prefix": prefix}}))
    up = ("up", "--config", str(file), "--data", str(tmp_path / "data"))
    bus, sent = KafkaBus(config, time.time_ns, boot_id=prefix), Counter[str]()
    await bus.start()
    stop = asyncio.Event()
    talking = asyncio.create_task(talk(bus, sent, stop))
    try:
        for how, until_rows in ((signal.SIGKILL, 200), (signal.SIGTERM, 400)):
            async with verb(log, *up) as running:
                await started(log, running)
                async with asyncio.timeout(WITHIN_S):
                    while sent[PROBE.name] < until_rows:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                await asyncio.sleep(2.0)
                running.send_signal(how)
                code = await asyncio.wait_for(running.wait(), 30.0)
                assert code == (0 if how == signal.SIGTERM else -signal.SIGKILL), said(log)
    finally:
        stop.set()
        await talking
        await bus.close()
    async with verb(log, *up) as running:
        await started(log, running)
        await asyncio.sleep(5.0)
        running.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(running.wait(), 30.0) == 0, said(log)
    with Engine.open(str(tmp_path / "data" / "archive")) as engine:
        ((rows, once),) = engine.rows("SELECT count(), uniqExact(src, dst, path, seq, t1_ns) FROM raw_probe")
    assert rows == once == sent[PROBE.name]
