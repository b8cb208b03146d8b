"""The pipeline in one process: bus, archive, stages, boards, agents' link, SQL front, queries, metrics.

``pipeline.py`` has the stages; this module opens what a process needs around them, and closes it again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream import pipeline
from sdfstream.actuate import keys_io
from sdfstream.archive.upkeep.passes_io import UpkeepThread
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.archive.writer_io import Archive
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus import Bus
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.open_io import open_bus
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED, FROM_AGENTS, OUTCOME, OVERRIDE
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import live_io
from sdfstream.runtime.archive_io import ARCHIVE
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.driver import StageMaker
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve import controller_io, operator_keys_io
from sdfstream.serve.alerts_io import pushing
from sdfstream.serve.api.server_io import OFF
from sdfstream.serve.api_io import ProcessApi, override_of
from sdfstream.serve.archive_config import live_archive
from sdfstream.serve.data_folder import JOBS, LINK_SOCKET
from sdfstream.serve.job_queries_io import BackgroundPublisher, JobQueries
from sdfstream.serve.queries import PipelineQueries, known_at_ns
from sdfstream.serve.query_io import QueryServer
from sdfstream.serve.self_report_io import SelfReport, reporting
from sdfstream.serve.sql_io import serve_sql
from sdfstream.stats import HasCounters

if TYPE_CHECKING:
    from sdfstream.settings import Settings

EVERYTHING: Final = tuple(ARCHIVED)


@dataclass(slots=True)
class Service:
    """A running pipeline."""

    bus: Bus
    data: Path
    """The data folder."""
    control: RunControl
    controller_key: Path | None = None
    """Public key of the controller, which signs commands and mesh plans; None: neither is made."""
    commands: bool = False
    """Whether commands are."""
    notes_reader: str = ""
    """Of the watcher that reads what operators said before this process began; empty: nothing was, on a bus of ours."""
    board: Board = field(default_factory=Board)
    jobs: JobBoard = field(init=False)
    counted: list[HasCounters] = field(default_factory=list)
    started_at_ns: int = 0
    api_url: str | None = None
    """Where the API answers; None: it is off."""

    def __post_init__(self) -> None:
        self.jobs = JobBoard(self.board.notes)

    @property
    def link(self) -> Path:
        """Socket at which agents of this machine publish their batches and receive commands."""
        return self.data / LINK_SOCKET

    @property
    def jobs_dir(self) -> Path:
        """Drop directory of the jobs of agents on this machine."""
        return self.data / JOBS

    def behind_s(self) -> float:
        """By how much the slowest stage is behind the bus, by bus time."""
        reached_at_ns = [at_ns for at_ns in self.control.reached_at_ns.values() if at_ns > 0]
        return (_bus_clock(self.bus)() - min(reached_at_ns)) / NS_PER_S if reached_at_ns else 0.0

    def knows_silences(self) -> bool:
        """Whether what operators said before this process began was read; before, no finding looks silenced."""
        return not self.notes_reader or self.control.lag.get(self.notes_reader, 1) == 0

    def known_at_ns(self, now_ns: int) -> int:
        """Bus time of which the findings speak."""
        return known_at_ns(self.board, now_ns, self.control.lag, self.control.reached_at_ns)

    def counters(self) -> dict[str, int]:
        """All counters of the process under dotted names."""
        merged: dict[str, int] = {}
        for one in self.counted:
            merged |= one.counters.as_dict()
        return merged


@asynccontextmanager
async def service(
    settings: Settings,
    *,
    record: Path | None = None,
    watchers: Sequence[Watcher] = (),
    metrics: str | None = None,
) -> AsyncIterator[Service]:
    """Run the pipeline on `settings` while the block runs; with `record`, write everything on the bus there too.

    With `metrics`, ``HOST:PORT``, Prometheus's metrics and the process's health are served there.

    At the end of the block what is on an in-process bus still reaches the archive (a broker stores it for the next
    process); then everything is closed in reverse order.
    """
    data, run_id = settings.data, uuid.uuid4().hex
    data.mkdir(parents=True, exist_ok=True)
    operator_keys_io.ensure(data)
    async with AsyncExitStack() as stack:
        bus = await open_bus(settings.bus, time.time_ns, boot_id=run_id, kafka=settings.kafka)
        stack.push_async_callback(bus.close)
        archive, upkeep = _open_archive(stack, settings, getattr(bus, "cluster_id", "") or run_id)
        front = serve_sql(stack, settings)
        authority = controller_io.authority(settings, time.time_ns())
        makers = pipeline.makers(settings, authority)
        controller_key = keys_io.load(data).public if authority else None
        control = RunControl(drain=_is_alone(settings))
        commands = settings.actuate.mode != "off"
        notes_reader = "" if _is_alone(settings) else f"board-notes-{run_id[:8]}"
        running = Service(bus, data, control, controller_key, commands, notes_reader, started_at_ns=time.time_ns())
        running.jobs_dir.mkdir(exist_ok=True)
        every = [*watchers, *_own_watchers(stack, settings, running, archive, record)]
        api = _make_api(settings, running)
        every += [api.watcher] if api is not None else []
        _start_pipeline(stack, settings, running, makers, every, archive)
        await asyncio.sleep(0.05)  # the stages subscribe before anything is published
        link = LinkServer(bus, running.link, topics=[topic.name for topic in FROM_AGENTS], behind_s=running.behind_s)
        await link.start()
        stack.push_async_callback(link.close)
        running.counted += [link, bus, *makers, archive, upkeep, running.board, running.jobs, control]
        running.counted += [*([front] if front else []), *([api.received] if api is not None else [])]
        alerts = pushing(settings.alerts, settings.cluster, running.board, running.knows_silences, running.counted)
        await stack.enter_async_context(alerts)
        report = await stack.enter_async_context(reporting(bus, "detect", "up", running.counted))
        if metrics is not None:
            readers = list(dict.fromkeys([*(maker.name for maker in makers), *(w.name for w in every), ARCHIVE]))
            await _serve_status(stack, metrics, running, readers, report)
        queries = await _serve_queries(stack, settings, running, report)
        if api is not None:
            running.api_url = (await api.start(stack, settings.api, override_of(queries))).url
        yield running


def _bus_clock(bus: Bus) -> Callable[[], int]:
    """Bus time; the machine's clock may have been set meanwhile."""
    clock: Callable[[], int] = getattr(bus, "now_ns", time.time_ns)
    return clock


def _is_alone(settings: Settings) -> bool:
    """Whether no other process reads the bus."""
    return settings.bus == "memory"


def _open_archive(stack: AsyncExitStack, settings: Settings, bus_id: str) -> tuple[Archive | ArchiveWork, UpkeepThread]:
    config = live_archive(settings, bus_id)
    alone = _is_alone(settings)  # else others may archive from this bus too, and go on where this process ends
    archive: Archive | ArchiveWork = Archive.open(config) if alone else ArchiveWork.open(config)
    upkeep = UpkeepThread.start(config.target, settings.retention)
    stack.push_async_callback(asyncio.to_thread, partial(upkeep.close, last_pass=alone))
    if isinstance(archive, Archive):
        stack.push_async_callback(archive.close)
    else:
        stack.callback(archive.close)
    return archive, upkeep


def _own_watchers(
    stack: AsyncExitStack, settings: Settings, running: Service, archive: Archive | ArchiveWork, record: Path | None
) -> Iterator[Watcher]:
    """The boards, the archive of an in-process bus, and the recorder."""
    yield Watcher("board", Board.reads, _taker(running.board))
    yield Watcher("jobs", JobBoard.reads, _taker(running.jobs))
    if running.notes_reader:
        yield Watcher(running.notes_reader, (OVERRIDE.name, OUTCOME.name), _notes_taker(running), from_start=True)
    if isinstance(archive, Archive):
        yield Watcher(ARCHIVE, EVERYTHING, archive.add, once=True)
    if record is not None:
        writer = RecordingWriter(record, time.time_ns, cluster=settings.cluster)
        stack.push_async_callback(writer.close)
        running.counted.append(writer)
        yield Watcher("recorder", EVERYTHING, _recorder(writer), singly=True)


def _start_pipeline(
    stack: AsyncExitStack,
    settings: Settings,
    running: Service,
    makers: Sequence[StageMaker],
    watchers: Sequence[Watcher],
    archive: Archive | ArchiveWork,
) -> None:
    """Stages, watchers and archive in a task of their own, which is stopped and awaited when `stack` closes."""
    work = asyncio.create_task(
        live_io.run(
            running.bus,
            makers,
            watchers,
            _bus_clock(running.bus),
            running.control,
            commits=None if _is_alone(settings) else CommitPolicy(),
            archive=archive if isinstance(archive, ArchiveWork) else None,
        )
    )
    main = asyncio.current_task()
    work.add_done_callback(lambda done: _fail_loudly(done, main))
    stack.push_async_callback(_end, running.control, work)


async def _serve_status(
    stack: AsyncExitStack, address: str, running: Service, readers: Sequence[str], report: SelfReport
) -> None:
    from sdfstream.runtime import disk_io
    from sdfstream.runtime.metrics import ProcessStatus
    from sdfstream.runtime.metrics_io import serving

    room = disk_io.gauges(running.data)
    status = ProcessStatus(running.control, readers, running.counted, gauges=room, troubles=report.sentences)
    await stack.enter_async_context(serving(address, status, getattr(running.bus, "ask", None)))


def _make_api(settings: Settings, running: Service) -> ProcessApi | None:
    if settings.api == OFF:
        return None

    def instants() -> tuple[int, int, dict[str, int]]:
        now_ns = _bus_clock(running.bus)()
        return now_ns, running.known_at_ns(now_ns), running.control.lag

    archive = (str(settings.data), settings.archive)
    return ProcessApi(running.board, running.jobs, instants, running.data, archive)


async def _serve_queries(
    stack: AsyncExitStack, settings: Settings, running: Service, report: SelfReport
) -> PipelineQueries:
    """Answer the verbs' requests at the data folder's socket."""
    publisher = BackgroundPublisher(running.bus)
    stack.push_async_callback(publisher.close)
    operators = lambda: operator_keys_io.trusted(running.data)  # noqa: E731
    jobs = JobQueries(running.jobs, publisher, operators=operators, mode=settings.actuate.mode)
    run = {"mode": "one process", "started_at_ns": running.started_at_ns, "data": str(running.data)}
    now_ns = _bus_clock(running.bus)

    def process() -> tuple[int, dict[str, int], dict[str, int], dict[str, Any]]:
        known = run | {"troubles": report.troubles.as_data(), "reached_at_ns": dict(running.control.reached_at_ns)}
        return now_ns(), running.counters(), running.control.lag, known

    queries = PipelineQueries(running.board, process, jobs)
    server = QueryServer(queries, running.data)
    running.counted.append(server)
    await server.start()
    stack.push_async_callback(server.close)
    return queries


def _taker(board: Board | JobBoard) -> Any:
    async def take(messages: Sequence[Message]) -> None:
        board.take(messages)

    return take


def _notes_taker(running: Service) -> Any:
    async def take(messages: Sequence[Message]) -> None:
        running.board.notes.take_all(messages)

    return take


def _recorder(writer: RecordingWriter) -> Any:
    async def take(messages: Sequence[Message]) -> None:
        writer.write(messages)

    return take


def _fail_loudly(work: asyncio.Task[None], main: asyncio.Task[Any] | None) -> None:
    """A defect in a stage ends the process at once; a pipeline that only seems to run is worse than none."""
    if not work.cancelled() and work.exception() is not None and main is not None:
        main.cancel()


async def _end(control: RunControl, work: asyncio.Task[None]) -> None:
    control.stop.set()
    await work
