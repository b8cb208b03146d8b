"""Sync in parts over a bus, by the loops that run it live: who reads what, and what stands in whose way."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from sdfstream import pipeline
from sdfstream.bus.joined_io import Joined
from sdfstream.bus.memory_io import MemoryBus
from sdfstream.cli import main
from sdfstream.cli.run import serve
from sdfstream.records.message import Output
from sdfstream.records.topics import BELIEF, CLOCK, EDGE, OWD, PROBE
from sdfstream.score.clock_sim import mesh
from sdfstream.settings import Settings
from tests.bus_samples import clock, finding


async def test_two_subscriptions_are_read_as_one_in_bus_order() -> None:
    bus = MemoryBus(time.time_ns)
    joined = Joined(await bus.subscribe("a", [CLOCK.name]), await bus.subscribe("b", [finding(1).topic]))
    await bus.publish([clock(1), finding(2), clock(3)])
    assert joined.lag() == 3
    found = await joined.read(timeout_s=1.0)
    assert [m.bus_at_ns for m in found] == sorted(m.bus_at_ns for m in found)
    assert {m.topic for m in found} == {CLOCK.name, finding(1).topic}
    await joined.commit()
    assert joined.lag() == 0
    await joined.close()


async def test_every_member_hears_every_belief() -> None:
    bus = MemoryBus(time.time_ns)
    control = pipeline.Control()
    members = [pipeline.sync_parts(Settings(), f"m{k}")[0] for k in range(2)]
    async with asyncio.TaskGroup() as group:
        for member in members:
            group.create_task(pipeline.run_stage(member, bus, time.time_ns, control))
        await asyncio.sleep(0.1)
        await bus.publish([Output(BELIEF.name, "mesh", _belief())])
        await asyncio.sleep(0.3)
        control.stop.set()
    assert all(member._told for member in members)


async def test_parts_run_by_name_tell_clocks_and_delays() -> None:
    bus = MemoryBus(time.time_ns)
    reader = await bus.subscribe("test", [CLOCK.name, OWD.name, EDGE.name, BELIEF.name])
    control = pipeline.Control()
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
    assert {m.topic for m in found} == {CLOCK.name, OWD.name, EDGE.name, BELIEF.name}
    last = [m for m in found if m.topic == CLOCK.name][-1].body.to_pylist()
    assert {row["clock"] for row in last} == {"h00", "h01", "h02"}
    assert counters["sync-edge.received"] == sum(m.rows for m in probes if m.topic == PROBE.name)


def test_both_ways_at_once_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "sync", "sync-edge", "--bus", "kafka://127.0.0.1:1", "--data", str(tmp_path)]) == 2
    assert "twice" in capsys.readouterr().err


def _belief():
    from sdfstream.sync.belief import Beliefs
    from sdfstream.sync.wire import belief_batches

    b = Beliefs()
    b.table.grow(1)
    return next(iter(belief_batches(1, ["a"], b, 0.0)))
