"""A real emulated job on real packets: the job map follows its process, the workload stage adds up what it got."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from sdfstream.agent.jobmap.folder_io import JobFolder
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.open_io import open_bus
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.lab.job_io import Job
from sdfstream.records.message import Message
from sdfstream.records.topics import QP, QP_WINDOW
from sdfstream.runtime import live_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.live_io import Watcher
from sdfstream.workload.stage import WorkloadStage
from tests.fixtures.lab import SMALL, up_or_skip

pytestmark = pytest.mark.lab
HOSTS = ("h00", "h02")
SPEC = JobSpec(name="live", hosts=HOSTS, qps=2, chunk_kb=32, message_mb=0.25)


async def _until(true: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen"
        await asyncio.sleep(0.02)


async def test_the_job_map_follows_a_process_that_runs_and_is_killed(tmp_path: Path) -> None:
    with up_or_skip(replace(SMALL, name=f"jobs-{os.getpid()}")) as fabric:
        folder = JobFolder(tmp_path, HOSTS)
        task = asyncio.create_task(folder.run())
        job = await asyncio.to_thread(Job.start, fabric, SPEC, tmp_path)
        try:
            await _until(lambda: [len(p.qps) for p in folder.jobs.shards] == [2, 2], 20.0)
            assert [(p.key, len(p.receives)) for p in folder.jobs.shards] == [("live@h00", 2), ("live@h02", 2)]
            own = {q["qp"]: q["path"] for host in HOSTS for q in await asyncio.to_thread(job.queue_pairs, host)}
            assert {q.qp: q.path for p in folder.jobs.shards for q in p.qps} == own
            assert folder.jobs.counters.total("refused") == 0
            reported = [o.body.data["state"] for o in folder.jobs.events(time.monotonic_ns(), time.time_ns())]
            assert reported == ["running", "running"]
            os.kill(job.stats()["pid"], signal.SIGKILL)
            await _until(lambda: all(not p.qps for p in folder.jobs.shards), 10.0)
            await _until(lambda: not folder.jobs.shards, 15.0)
            reported = [o.body.data["state"] for o in folder.jobs.events(time.monotonic_ns(), time.time_ns())]
            assert reported == ["ended", "ended"], "the files are still there, the process is not"
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            with suppress(Exception):
                await asyncio.to_thread(job.stop)


async def test_every_byte_of_a_real_job_is_in_a_window(tmp_path: Path) -> None:
    received: list[Message] = []
    stage, control = WorkloadStage(), RunControl()

    async def take(messages: list[Message]) -> None:
        received.extend(messages)

    bus = await open_bus("memory", time.time_ns, boot_id="test")
    watcher = Watcher("test", (QP.name, QP_WINDOW.name), take)
    work = asyncio.create_task(live_io.run(bus, [stage], [watcher], time.time_ns, control))
    await asyncio.sleep(0.1)
    link = LinkServer(bus, tmp_path / "link.sock")
    await link.start()
    try:
        with up_or_skip(replace(SMALL, name=f"jobs-{os.getpid()}")) as fabric:
            (tmp_path / "jobs").mkdir()
            args = (fabric, replace(SPEC, seconds=3.0), tmp_path / "jobs", (), tmp_path / "link.sock")
            job = await asyncio.to_thread(Job.start, *args)
            await asyncio.sleep(4.0)
            await asyncio.to_thread(job.stop)
    finally:
        await link.close()
        control.stop.set()
        await work
        await bus.close()
    raw = [row for m in received if m.topic == QP.name for row in m.body.to_pylist()]
    made = [row for m in received if m.topic == QP_WINDOW.name for row in m.body.to_pylist()]
    assert raw and {row["qp"] for row in raw} == {row["qp"] for row in made}
    assert sum(r["bytes"] for r in raw) == sum(r["bytes"] for r in made) + stage.counters.get("stale-bytes")
    assert sum(r["n"] for r in made) + stage.counters.get("stale") == len(raw)
    assert {(r["job"], r["dst_port"]) for r in made} == {("live", 4791)}
    assert stage.counters.total("refused") == 0
