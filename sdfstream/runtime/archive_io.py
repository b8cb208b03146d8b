"""The archive as a task of a live bus, and its progress for `RunControl`."""

from __future__ import annotations

import asyncio
from typing import Final

from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.records.position import Positions
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_MS
from sdfstream.runtime.control_io import RunControl

ARCHIVE: Final = "archive"
"""Name of the archive's consumer group and task."""
_SLICE_NS: Final = 250 * NS_PER_MS
"""Rows wait for their insert by the second; reading them message by message would only wake the process."""


async def share_archive(archive: ArchiveWork, bus: Bus, control: RunControl, member: str) -> None:
    """Join the archive's group until `control.stop` is set: one process archives, others stand by."""
    loop = asyncio.get_running_loop()
    control.joined_at_s[ARCHIVE] = loop.time()

    async def serve(task: Task) -> None:
        control.progress_at_s.setdefault(ARCHIVE, loop.time())
        last_positions: Positions = {}

        def report(held_bytes: int) -> None:
            nonlocal last_positions
            lag, positions = task.lag(), task.positions()
            if positions != last_positions or not lag:
                control.progress_at_s[ARCHIVE] = loop.time()
            last_positions, control.lag[ARCHIVE] = positions, lag
            oldest_ns = archive.oldest_ns
            if oldest_ns is None:
                control.oldest_at_ns.pop(ARCHIVE, None)
            else:
                control.oldest_at_ns[ARCHIVE] = oldest_ns

        try:
            await archive.run(task, control.stop, report)
        finally:
            control.forget(ARCHIVE)

    try:
        work = Work(ARCHIVE, tuple(ARCHIVED), from_start=True, slice_ns=_SLICE_NS)
        await bus.shared(work, serve, control.stop, member=member)
    finally:
        control.joined_at_s.pop(ARCHIVE, None)
