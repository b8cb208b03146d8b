"""READ FIRST: the path of a sample, stage by stage.

::

    agents ─► sdf.raw.* ─► sync ─► sdf.state.clock.v1, sdf.derived.owd.v1 ─► detect ─► sdf.event.finding.v1
    jobs ───┘    │           └─► workload ─► sdf.derived.qp.v1      │                       │
      ▲          └───────────┴──────────────┬─────────────────────┬─┴───────────────────────┘
      │                               archive (every topic), board, recorder
      └── sdf.control.command.v1 ◄── actuate ◄── jobs, ways, windows of queue pairs, outcomes, overrides
    agents ◄── sdf.state.mesh.v1 (who probes whom) ◄── plan ◄── agents' NICs, cabling, traces

The same stages run in three ways over one seam: live in one process, each on its own or in several processes on Kafka
(both `run`, one loop: `stage_io`), and over a recording as fast as the machine allows (`replaying`). A stage never
reads a clock: `drive.Driver` steps it at every 100 ms boundary of bus time and at every message, so what a stage says
depends only on what was on the bus.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from sdfstream import __version__
from sdfstream.actuate import keys_io
from sdfstream.actuate.stage import ActuateStage, Authority
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.archiving_io import ARCHIVE, share_archive
from sdfstream.bus import Bus
from sdfstream.bus.task import Task, Work
from sdfstream.detect.stage import DetectStage
from sdfstream.drive import Driver, Stage, StageMaker
from sdfstream.errors import SdfError
from sdfstream.plan.stage import PlanStage
from sdfstream.records.message import Message
from sdfstream.records.topics import BELIEF, PROBE
from sdfstream.settings import Settings
from sdfstream.stage_control_io import Control, Ending, Keep
from sdfstream.stage_io import run_stage
from sdfstream.sync.edge_stage import SyncEdgeStage
from sdfstream.sync.mesh_stage import SyncMeshStage
from sdfstream.sync.stage import SyncStage
from sdfstream.workload.stage import WorkloadStage

__all__ = [
    "Control",
    "Driver",
    "Keep",
    "Stage",
    "StageMaker",
    "Watcher",
    "authority",
    "makers",
    "only",
    "run",
    "run_stage",
    "run_watcher",
    "share_stage",
    "stages",
    "supervise",
    "sync_parts",
]
log = logging.getLogger("sdfstream.pipeline")


@dataclass(frozen=True, slots=True)
class Watcher:
    """Something that only reads: the archive, the board, a recorder."""

    name: str
    topics: tuple[str, ...]
    take: Callable[[Sequence[Message]], Awaitable[None]]
    from_start: bool = False
    """A group without a position begins with the oldest message, not at the end."""


def makers(settings: Settings, authority: Authority | None = None) -> list[StageMaker]:
    """How the stages of the path are made, in order; without `authority` (a replay) the controller enforces nothing."""
    path = [
        _maker(SyncStage, lambda _: SyncStage(settings.sync), settings.sync),
        _maker(WorkloadStage, lambda _: WorkloadStage(settings.workload), settings.workload),
        _maker(DetectStage, lambda _: DetectStage(settings.detect), settings.detect),
    ]
    if settings.actuate.mode != "off":
        path.append(_maker(ActuateStage, lambda _: ActuateStage(settings.actuate, authority), settings.actuate))
    if settings.plan.mesh == "auto" or (settings.agent is not None and settings.agent.mesh == "auto"):
        path.append(_maker(PlanStage, lambda _: PlanStage(settings.plan), settings.plan))
    return path


def stages(settings: Settings, authority: Authority | None = None) -> list[Stage]:
    """The stages of the path, in order, each as one unit."""
    return [maker.make("0") for maker in makers(settings, authority)]


def sync_parts(settings: Settings) -> list[StageMaker]:
    """Sync in parts: any number of processes with the first, one with the second (docs/sync-scale.md)."""
    edge = _maker(SyncEdgeStage, lambda unit: SyncEdgeStage(settings.sync, unit), settings.sync)
    edge.for_all, edge.by_partition = (BELIEF.name,), PROBE.name
    return [edge, _maker(SyncMeshStage, lambda _: SyncMeshStage(settings.sync), settings.sync)]


def only(stage: Stage) -> StageMaker:
    """A maker that knows this one stage: for one process, where state ends with the process anyway."""
    return StageMaker(stage.name, stage.reads, lambda _: stage)


def _maker(kind: type[Stage], make: Callable[[str], Stage], config: object) -> StageMaker:
    digest = hashlib.blake2s(repr(config).encode(), digest_size=8).hexdigest()
    return StageMaker(kind.name, kind.reads, make, identity=f"{kind.name} {__version__} {digest}")


def authority(settings: Settings, started_at_ns: int) -> Authority | None:
    """What a live controller acts by: its keys in the data folder (made on first use), its start as its epoch.

    Raises
    ------
    ConfigError
        A key file cannot be read or written, or others may read the private one.
    """
    if settings.actuate.mode == "off":
        return None
    keys = keys_io.load(settings.data)
    return Authority(keys.signer, keys.operators, started_at_ns)


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
