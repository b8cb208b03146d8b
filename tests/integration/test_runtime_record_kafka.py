"""``sdfstream run`` and ``sdfstream record`` as processes on a real broker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sdfstream import cli
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records.message import Output
from sdfstream.records.topics import LIVENESS, NIC, OWD, PROBE
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.leafspine import EPOCH, Fabric, Shape

pytestmark = pytest.mark.kafka
ROOT = Path(__file__).parents[2]
WITHIN_S = 60.0


@asynccontextmanager
async def verb(log: Path, *args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A verb as a process, killed at the end; its sentences go to `log`."""
    with log.open("wb") as said:
        running = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sdfstream", *args, cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=said
        )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()


async def ended(running: asyncio.subprocess.Process) -> dict[str, Any]:
    """What a verb that is told to stop says as its last line."""
    running.send_signal(signal.SIGTERM)
    out, _ = await asyncio.wait_for(running.communicate(), 30.0)
    assert running.returncode == 0
    result: dict[str, Any] = json.loads(out.splitlines()[-1])
    return result


async def publish_until(bus: KafkaBus, topics: set[str]) -> None:
    """Agents' messages in their own time, until all of `topics` were seen on the bus."""
    reader = await bus.subscribe(f"seen-{os.getpid()}-{time.time_ns()}", sorted(topics))
    missing, began_s = set(topics), time.monotonic()
    fabric = Fabric(1, shape=Shape(hosts=2, ports=1, rate_hz=8.0, owd=False, clocks=False))
    for message in fabric.messages(WITHIN_S):
        await asyncio.sleep((message.bus_at_ns - EPOCH) / 1e9 - (time.monotonic() - began_s))
        await bus.publish([Output(message.topic, message.key, message.body)])
        missing -= {m.topic for m in await reader.read(timeout_s=0.0)}
        if not missing:
            return
    raise AssertionError(f"never seen: {missing}")


async def test_stages_as_processes_and_a_recording_of_all(kafka: Broker, tmp_path: Path) -> None:
    name, prefix = f"kafka://{kafka.address}", f"run{time.time_ns()}."
    bus = KafkaBus(KafkaConfig(servers=kafka.address, prefix=prefix), time.time_ns, boot_id=prefix)
    await bus.start()
    try:
        file = tmp_path / "settings.json"
        file.write_text(json.dumps({"bus": name, "kafka": {"prefix": prefix}}))
        record = ("record", "--json", "--config", str(file))
        run = ("run", "--json", "--config", str(file), "--data", str(tmp_path / "data"))
        async with (
            verb(tmp_path / "run.log", *run, "sync", "detect", "archive") as stages,
            verb(tmp_path / "record.log", *record, "--out", str(tmp_path / "rec")) as recorder,
        ):
            await publish_until(bus, {OWD.name, NIC.name, LIVENESS.name})
            await asyncio.sleep(1.0)
            counters = (await ended(stages))["counters"]
            result = await ended(recorder)
    finally:
        await bus.close()
    assert bus.cluster_id
    assert counters["archive.messages"] > 0
    assert not any(".refused" in counter or counter.startswith("pipeline.restarted") for counter in counters), counters
    kept = {m.topic for m in open_recording(tmp_path / "rec").messages()}
    assert {PROBE.name, LIVENESS.name, OWD.name, NIC.name} <= kept
    assert result["rows"] > 0


def test_a_bus_that_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nobody = "kafka://127.0.0.1:1"
    assert cli.main(["record", "--bus", nobody, "--out", str(tmp_path / "rec")]) == 2
    assert cli.main(["run", "sync", "--bus", nobody]) == 2
    assert cli.main(["run", "sync"]) == 2
    said = capsys.readouterr().err
    assert said.count("127.0.0.1:1") >= 2
    assert "sdfstream up" in said
    assert not (tmp_path / "rec").exists()
