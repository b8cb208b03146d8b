"""The shipped pipeline and agent over a lab of this measurement's own, and everything they put on the bus."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from sdfstream.demo.lab_source_io import lab_source
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.records.message import Message
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings
from tests.bench.harness import SkippedError

READY_S = 20.0


@dataclass
class LabRun:
    """A running lab with its pipeline; `messages` grows."""

    fabric: Fabric
    running: Service
    agent_pid: int
    messages: list[Message] = field(default_factory=list)

    async def ready(self) -> float:
        """Wait until every clock is synced; how long it took, in seconds."""
        began = time.monotonic()
        hosts = self.fabric.spec.hosts
        while time.monotonic() - began < READY_S:
            statuses = self.running.board.view(time.time_ns())["clocks"]["by_status"]
            if statuses.get("synced", 0) == hosts:
                return time.monotonic() - began
            await asyncio.sleep(0.1)
        raise RuntimeError(f"not all of {hosts} clocks synced after {READY_S:.0f} s: {statuses}")


@asynccontextmanager
async def lab_run(spec: FabricSpec, mesh: MeshSpec, topics: Sequence[str]) -> AsyncIterator[LabRun]:
    """Lab, pipeline and agent while the block runs; keeps the messages of `topics`."""
    try:
        fabric = Fabric.up(replace(spec, name=f"bench-{os.getpid()}"))
    except LabUnavailableError as error:
        raise SkippedError(f"no lab on this machine: {error}") from error
    with fabric, tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        kept: list[Message] = []

        async def keep(messages: Sequence[Message]) -> None:
            kept.extend(messages)

        watcher = Watcher("bench", tuple(topics), keep)
        async with (
            service(Settings(data=Path(folder)), watchers=[watcher]) as running,
            lab_source(fabric, running, mesh) as agent,
        ):
            yield LabRun(fabric, running, agent.pid, kept)
