"""A spill that the disk refuses is a trouble of the agent until the disk takes something again."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.queues import OutputQueue, queued
from sdfstream.agent.spill import task_io
from sdfstream.agent.spill.files_io import Appended, SpillFolder
from sdfstream.agent.spill.task_io import SpillTask
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import LIVENESS
from sdfstream.stats import Counters


async def test_it_is_told_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_io, "_PAUSE_S", 0.05)
    counters, folder = Counters("agent"), SpillFolder(tmp_path / "spill", 1 << 20)
    queues = [OutputQueue("event"), OutputQueue("bulk")]
    task = SpillTask(folder, queues, counters, 1 << 16, lambda: None)
    append = folder.append

    def full(*_: Any) -> Appended:
        return Appended(error=OSError(errno.ENOSPC, "No space left on device"))

    monkeypatch.setattr(folder, "append", full)
    queues[0].held.append(queued(Output(LIVENESS.name, "h1", Event(LIVENESS.name, "h1", "b-1", 1, {"host": "h1"}))))
    task.excess_bytes = 1 << 16
    running = asyncio.create_task(task.run())
    async with asyncio.timeout(20):
        while not counters.troubles.current(0.0):  # noqa: ASYNC110 - the task writes counters, it sets no event
            await asyncio.sleep(0.01)
        assert "No space left on device" in counters.troubles.current(0.0)["spill"]
        monkeypatch.setattr(folder, "append", append)
        while counters.troubles.current(0.0):
            task.excess_bytes = 1 << 16
            task.wake()
            await asyncio.sleep(0.01)
    await task.stop(running)
