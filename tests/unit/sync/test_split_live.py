"""Sync in parts over a bus, by the loops that run it live: who reads what, and what stands in whose way."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.cli import main
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, EDGE, ESTIMATE, OWD, PROBE
from sdfstream.runtime.control_io import RunControl
from sdfstream.score.clock.sim import mesh
from sdfstream.serve.stages_io import serve
from sdfstream.settings import Settings


async def test_shares_run_by_name_publish_clocks_and_delays() -> None:
    bus = MemoryBus(time.time_ns)
    reader = await bus.subscribe("test", [CLOCK.name, OWD.name, EDGE.name, ESTIMATE.name])
    control = RunControl()
    running = asyncio.create_task(serve(bus, Settings(), ["sync-edge", "sync-mesh"], control, bus_id="b"))
    await asyncio.sleep(0.1)
    probes = mesh(3, 2, "A", 64.0, seed=1).messages(2.5)
    began_s, first_ns = asyncio.get_running_loop().time(), probes[0].bus_at_ns
    for m in probes:
        await asyncio.sleep(max(0.0, began_s + (m.bus_at_ns - first_ns) / 1e9 - asyncio.get_running_loop().time()))
        await bus.publish([Output(m.topic, m.key, m.body)])
    await asyncio.sleep(0.5)
    control.stop.set()
    counters = await running
    found = await reader.read(10_000, 0.5)
    assert {m.topic for m in found} == {CLOCK.name, OWD.name, EDGE.name, ESTIMATE.name}
    last = [m for m in found if m.topic == CLOCK.name][-1].body.to_pylist()
    assert {row["clock"] for row in last} == {"h00", "h01", "h02"}
    assert counters["sync-edge.received"] == sum(m.rows for m in probes if m.topic == PROBE.name)


def test_both_kinds_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sync", "sync-edge", "--bus", "kafka://127.0.0.1:1", "--data", str(tmp_path)]) == 2
    assert "twice" in capsys.readouterr().err
