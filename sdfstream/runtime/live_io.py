"""Stages and watchers on a live bus, until stopped; each is restarted, with back-off, after an expected failure."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sdfstream.archive.work_io import ArchiveWork
from sdfstream.bus import Bus, dead_letters
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.bus.task import Task, Work
from sdfstream.errors import SdfError
from sdfstream.records.message import Message
from sdfstream.records.slices import SLICE_NS
from sdfstream.runtime.archive_io import ARCHIVE, share_archive
from sdfstream.runtime.control_io import CommitPolicy, RunControl, StopCondition
from sdfstream.runtime.driver import Stage, StageMaker
from sdfstream.runtime.raised import dead_letter, is_of_message
from sdfstream.runtime.stage_io import run_stage
from sdfstream.stats import Counters

log = logging.getLogger("sdfstream.pipeline")


@dataclass(frozen=True, slots=True)
class Watcher:
    """A reader that publishes nothing: the archive, the board, a recorder."""

    name: str
    topics: tuple[str, ...]
    take: Callable[[Sequence[Message]], Awaitable[None]]
    from_start: bool = False
    """Whether a group without a position begins with the oldest message instead of at the end."""
    singly: bool = False
    """Give it one message at a time: it may have taken some of a batch at which it raises."""
    once: bool = False
    """Leave out what a producer sends again; a task's `read` does the same for stages."""


def maker_of(stage: Stage) -> StageMaker:
    """A maker that always gives `stage`: for one process, with whose end the state ends anyway."""
    return StageMaker(stage.name, stage.reads, stage.writes, lambda _: stage)


async def run(
    bus: Bus,
    stages: Sequence[StageMaker | Stage],
    watchers: Sequence[Watcher],
    clock: Callable[[], int],
    control: RunControl,
    *,
    commits: CommitPolicy | None = None,
    member: str = "",
    archive: ArchiveWork | None = None,
) -> None:
    """Run stages and watchers until `control.stop` is set.

    Without `commits` no other process reads this bus: what is on the bus at the stop still reaches the watchers. With
    it, the stages share their work with other processes of the same bus, and leave the rest to them.

    Parameters
    ----------
    member : str
        Name of this process among those, so that its quick restart moves no work.
    archive : ArchiveWork, optional
        The archive as a user of tasks: each row is inserted once, whichever process does it.
    """
    each = [stage if isinstance(stage, StageMaker) else maker_of(stage) for stage in stages]
    control.active_stages = [maker.name for maker in each]
    async with asyncio.TaskGroup() as group:
        if archive is not None:
            archive_rows = partial(share_archive, archive, bus, control, member)
            group.create_task(supervise(ARCHIVE, archive_rows, control), name=ARCHIVE)
        for maker in each:
            serve = partial(share_stage, maker, bus, clock, control, commits, member)
            running = group.create_task(supervise(maker.name, serve, control), name=maker.name)
            running.add_done_callback(lambda done: control.active_stages.remove(done.get_name()))
        for watcher in watchers:
            watch = partial(run_watcher, watcher, bus, clock, control)
            group.create_task(supervise(watcher.name, watch, control), name=watcher.name)


async def share_stage(
    maker: StageMaker,
    bus: Bus,
    clock: Callable[[], int],
    control: RunControl,
    commits: CommitPolicy | None,
    member: str,
) -> None:
    """Join the group of a stage and serve the units that it assigns, until `control.stop` is set."""
    partitioned = tuple(topic for topic in maker.reads if topic not in maker.for_all)
    units = await bus.partitions(maker.by_partition) if maker.by_partition else 1
    work = Work(maker.name, partitioned, maker.for_all, units, slice_ns=SLICE_NS)
    control.joined_at_s[maker.name] = asyncio.get_running_loop().time()

    async def serve(task: Task) -> None:
        await run_stage(maker, task, clock, control, commits)

    try:
        await bus.shared(work, serve, control.stop, member=member)
    finally:
        control.joined_at_s.pop(maker.name, None)


async def run_watcher(watcher: Watcher, bus: Bus, clock: Callable[[], int], control: RunControl) -> None:
    """Hand every message to the watcher, then commit, until `StopCondition` is met."""
    subscription = await bus.subscribe(watcher.name, watcher.topics, from_start=watcher.from_start, slice_ns=SLICE_NS)
    loop, stop_condition = asyncio.get_running_loop(), StopCondition(control, watcher.name, clock)
    repeats = SequenceWatch(Counters(watcher.name), watcher.name)  # the subscription counts them
    try:
        while True:
            stop_condition.before_read()
            messages = await subscription.read(timeout_s=1.0)
            lag = control.lag[watcher.name] = subscription.lag()
            if messages or not lag:
                control.progress_at_s[watcher.name] = loop.time()
            if messages:
                control.oldest_at_ns[watcher.name] = messages[0].bus_at_ns
                fresh = messages
                if watcher.once:
                    fresh = [m for m in messages if repeats.see(m.topic, m.key, m.boot_id, m.batch_seq)]
                await _hand_over(watcher, fresh, bus, control)
                await subscription.commit()
                control.oldest_at_ns.pop(watcher.name, None)
            if stop_condition.is_met(messages):
                return
    finally:
        control.forget(watcher.name)
        await subscription.close()


async def _hand_over(watcher: Watcher, messages: Sequence[Message], bus: Bus, control: RunControl) -> None:
    """Give `messages` to the watcher; one at which it raises is set aside: counted, and a dead letter.

    A watcher that takes all or none gets them at once, and singly only if it raises.
    """
    if not watcher.singly:
        error = await _raised(watcher, messages)
        if error is None:
            return
    for message in messages:
        error = await _raised(watcher, [message])
        if error is None:
            continue
        control.counters.add("set-aside", f"{watcher.name}.{type(error).__name__}")
        log.warning("%s set message %d of %s aside: %r", watcher.name, message.bus_seq, message.topic, error)
        if not dead_letters.is_dead(message.topic):
            with suppress(SdfError):  # who may not write there has counted it
                await bus.publish([dead_letter(watcher.name, message, message.bus_at_ns, "take-raised", error)])


async def _raised(watcher: Watcher, messages: Sequence[Message]) -> Exception | None:
    """What the watcher raised at `messages`, if that may come of what they say; other errors pass."""
    try:
        await watcher.take(messages)
    except OSError:  # a full disk
        raise
    except Exception as error:
        if not is_of_message(error):
            raise
        return error
    return None


async def supervise(name: str, task: Callable[[], Awaitable[None]], control: RunControl) -> None:
    """Run `task` to its end: an expected failure is logged, counted, and answered by a restart with back-off.

    Once `control.stop` is set a failure is the end, since a bus that is away cannot be drained.
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
