"""The archive as one of those who share work on a bus, and its signs of life."""

from __future__ import annotations

import asyncio
from typing import Final

from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.records.position import Positions
from sdfstream.records.topics import ARCHIVED
from sdfstream.runtime.control_io import Control

ARCHIVE: Final = "archive"
"""The name of the archive's work, its consumer group and its task."""


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
            await archive.run(task, control.stop, tell)
        finally:
            control.forget(ARCHIVE)

    try:
        await bus.shared(Work(ARCHIVE, tuple(ARCHIVED), from_start=True), serve, control.stop, member=member)
    finally:
        control.joined_s.pop(ARCHIVE, None)
