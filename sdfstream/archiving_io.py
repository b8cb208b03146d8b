"""The archive as one of those who share work on a bus, and its signs of life."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.records.position import Positions
from sdfstream.records.topics import ARCHIVED
from sdfstream.stage_io import Control

ARCHIVE: Final = "archive"
"""The name of the archive's work, its consumer group and its task."""
_QUIET_S: Final = 1.0


async def share_archive(archive: ArchiveWork, bus: Bus, control: Control, member: str) -> None:
    """Take part in archiving until told to stop: one process does it, others stand by."""
    loop = asyncio.get_running_loop()
    control.joined_s[ARCHIVE] = loop.time()

    async def serve(task: Task) -> None:
        control.progress_s.setdefault(ARCHIVE, loop.time())
        stood: Positions = {}

        def tell(held_bytes: int) -> None:
            nonlocal stood
            lag, stands = task.lag(), task.positions()
            if stands != stood or not lag:
                control.progress_s[ARCHIVE] = loop.time()
            stood, control.lag[ARCHIVE] = stands, lag
            oldest_ns = archive.oldest_ns
            if oldest_ns is None:
                control.oldest_ns.pop(ARCHIVE, None)
            else:
                control.oldest_ns[ARCHIVE] = oldest_ns

        try:
            await archive.run(task, _Quiet(control, task, loop.time), tell)
        finally:
            control.forget(ARCHIVE)

    try:
        await bus.shared(Work(ARCHIVE, tuple(ARCHIVED), from_start=True), serve, control.stop, member=member)
    finally:
        control.joined_s.pop(ARCHIVE, None)


@dataclass(slots=True)
class _Quiet:
    """Set once we are told to stop and, where all is to be drained, nothing more has come for a while."""

    control: Control
    task: Task
    time_s: Callable[[], float]
    quiet_s: float | None = None

    def is_set(self) -> bool:
        """Whether it is time."""
        if not self.control.stop.is_set() or not self.control.drain:
            return self.control.stop.is_set()
        if self.task.lag() or self.quiet_s is None:
            self.quiet_s = self.time_s()
        return self.time_s() - self.quiet_s >= _QUIET_S
