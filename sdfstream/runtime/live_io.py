"""Stages and watchers at work on a live bus, until told to stop; what fails in an expected way is started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.errors import SdfError
from sdfstream.records.message import Message
from sdfstream.runtime.archive_io import ARCHIVE, share_archive
from sdfstream.runtime.control_io import Control, Ending, Keep
from sdfstream.runtime.driver import Stage, StageMaker
from sdfstream.runtime.stage_io import run_stage

log = logging.getLogger("sdfstream.pipeline")


@dataclass(frozen=True, slots=True)
class Watcher:
    """Something that only reads: the archive, the board, a recorder."""

    name: str
    topics: tuple[str, ...]
    take: Callable[[Sequence[Message]], Awaitable[None]]
    from_start: bool = False
    """A group without a position begins with the oldest message, not at the end."""


def only(stage: Stage) -> StageMaker:
    """A maker that knows this one stage: for one process, where state ends with the process anyway."""
    return StageMaker(stage.name, stage.reads, stage.writes, lambda _: stage)


async def run(
    bus: Bus,
    path: Sequence[StageMaker | Stage],
    watchers: Sequence[Watcher],
    clock: Callable[[], int],
    control: Control,
    *,
    keep: Keep | None = None,
    member: str = "",
    archive: ArchiveWork | None = None,
) -> None:
    """Run stages and watchers until told to stop.

    Without `keep` this process is all there is: what is on the bus by then still reaches the watchers. With it, the
    stages share their work with other processes of the same bus, and what is left is left to them.

    Parameters
    ----------
    member : str
        Names this process among those, so that its quick restart moves no work.
    archive : ArchiveWork, optional
        The archive as a user of tasks: each row goes in once, whichever process does it.
    """
    each = [stage if isinstance(stage, StageMaker) else only(stage) for stage in path]
    control.at_work = [maker.name for maker in each]
    async with asyncio.TaskGroup() as group:
        if archive is not None:
            keep_rows = partial(share_archive, archive, bus, control, member)
            group.create_task(supervise(ARCHIVE, keep_rows, control), name=ARCHIVE)
        for maker in each:
            serve = partial(share_stage, maker, bus, clock, control, keep, member)
            running = group.create_task(supervise(maker.name, serve, control), name=maker.name)
            running.add_done_callback(lambda done: control.at_work.remove(done.get_name()))
        for watcher in watchers:
            watch = partial(run_watcher, watcher, bus, clock, control)
            group.create_task(supervise(watcher.name, watch, control), name=watcher.name)


async def share_stage(
    maker: StageMaker, bus: Bus, clock: Callable[[], int], control: Control, keep: Keep | None, member: str
) -> None:
    """Take part in a stage's work until told to stop."""
    dealt = tuple(topic for topic in maker.reads if topic not in maker.for_all)
    units = await bus.partitions(maker.by_partition) if maker.by_partition else 1
    work = Work(maker.name, dealt, maker.for_all, units)
    control.joined_s[maker.name] = asyncio.get_running_loop().time()

    async def serve(task: Task) -> None:
        await run_stage(maker, task, clock, control, keep)

    try:
        await bus.shared(work, serve, control.stop, member=member)
    finally:
        control.joined_s.pop(maker.name, None)


async def run_watcher(watcher: Watcher, bus: Bus, clock: Callable[[], int], control: Control) -> None:
    """Hand every message to the watcher, then commit; once told to stop, until it has read enough (`Ending`)."""
    subscription = await bus.subscribe(watcher.name, watcher.topics, from_start=watcher.from_start)
    loop, ending = asyncio.get_running_loop(), Ending(control, watcher.name, clock)
    try:
        while True:
            ending.look()
            messages = await subscription.read(timeout_s=1.0)
            lag = control.lag[watcher.name] = subscription.lag()
            if messages or not lag:
                control.progress_s[watcher.name] = loop.time()
            if messages:
                control.oldest_ns[watcher.name] = messages[0].bus_at_ns
                await watcher.take(messages)
                await subscription.commit()
                control.oldest_ns.pop(watcher.name, None)
            if ending.reached(messages):
                return
    finally:
        control.forget(watcher.name)
        await subscription.close()


async def supervise(name: str, task: Callable[[], Awaitable[None]], control: Control) -> None:
    """Run `task` to its end: an expected failure is logged, counted, and answered by a restart with back-off.

    Once told to stop, a failure is the end: with a bus that is away there is nothing more to be had.
    """
    delay_s = 0.5
    while True:
        started_s = asyncio.get_running_loop().time()
        try:
            await task()
            return
        except SdfError as error:
            if asyncio.get_running_loop().time() - started_s > 30:
                delay_s = 0.5
            control.counters.add("restarted", name)
            log.warning("%s stopped (%s); restarting in %.1f s", name, error, delay_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(control.stop.wait(), delay_s)
        if control.stop.is_set():
            return
        delay_s = min(delay_s * 2, 30.0)
