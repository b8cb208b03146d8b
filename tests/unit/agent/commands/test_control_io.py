"""The journal is written after changes, again where it could not be, and costs nothing while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.commands.control_io import JOURNAL_S, AgentControl
from sdfstream.agent.commands.journal_io import JournalFile
from sdfstream.records.signature import KeyRing


class File(JournalFile):
    def __init__(self, failures: int = 0) -> None:
        super().__init__(Path("unused"))
        self.written, self.failures = 0, failures

    def write(self, data: Mapping[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, "No space left on device")
        self.written += 1


@pytest.mark.parametrize("failures", [0, 2])
async def test_the_journal_is_written_once_a_change_and_no_timer_runs_meanwhile(
    monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    slept: list[float] = []
    sleep = asyncio.sleep

    async def counted(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    monkeypatch.setattr("sdfstream.agent.commands.control_io.asyncio.sleep", counted)
    file = File(failures)
    control = AgentControl(["h0"], KeyRing({}), {}, file, "boot")
    task = asyncio.create_task(control.keep_journal())
    await sleep(5 * JOURNAL_S)
    assert (slept, file.written) == ([], 0)
    control.executor.dirty = True
    control.take_jobs({})
    for _ in range(200):
        if file.written:
            break
        await sleep(JOURNAL_S)
    await sleep(5 * JOURNAL_S)
    task.cancel()
    assert file.written == 1 and slept == [JOURNAL_S] * (1 + failures)
    assert "journal" not in control.counters.troubles.open
