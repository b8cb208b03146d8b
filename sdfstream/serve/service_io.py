"""The pipeline in one process with its doors: agents' link, SQL front, live board, recorder.

``pipeline.py`` says what flows where; this module opens what a process needs around it and closes it again.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream import pipeline
from sdfstream.actuate import keys_io
from sdfstream.archive.config import LIVE, ArchiveConfig
from sdfstream.archive.http.endpoint_io import remove_endpoint, write_endpoint
from sdfstream.archive.http.server_io import SqlFront
from sdfstream.archive.upkeep_io import UpkeepThread
from sdfstream.archive.work_io import ArchiveWork
from sdfstream.archive.writer_io import Archive
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus import Bus
from sdfstream.bus.link.client_io import LinkServer
from sdfstream.bus.open_io import open_bus
from sdfstream.bus.recording.reader_io import RecordingWriter
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED
from sdfstream.runtime import live_io
from sdfstream.runtime.archive_io import ARCHIVE
from sdfstream.runtime.control_io import CommitPolicy, RunControl
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve import operator_keys_io
from sdfstream.serve.data_folder import JOBS, LINK_SOCKET
from sdfstream.serve.job_queries_io import JobAnswers, Publishing
from sdfstream.serve.queries import LiveAnswers
from sdfstream.serve.query_io import LiveServer

if TYPE_CHECKING:
    from sdfstream.settings import Settings

EVERYTHING: Final = tuple(ARCHIVED)


@dataclass(slots=True)
class Service:
    """A running pipeline."""

    bus: Bus
    board: Board
    link: Path
    """Where agents on this machine leave their batches."""
    http_port: int
    jobs_dir: Path
    """Drop directory of the jobs of agents on this machine."""
    controller_key: Path | None = None
    """Public key that commands are signed with; None: there is no controller."""
    jobs: JobBoard = field(default_factory=JobBoard)
    """What is known of jobs and of what was done for them."""
    parts: list[Any] = field(default_factory=list)
    """Everything that has ``counters``."""
    started_at_ns: int = 0

    def counters(self) -> dict[str, int]:
        """Counters of every part under dotted names."""
        merged: dict[str, int] = {}
        for part in self.parts:
            merged |= part.counters.as_dict()
        return merged


@asynccontextmanager
async def service(
    settings: Settings,
    *,
    record: Path | None = None,
    watchers: Sequence[Watcher] = (),
    metrics: str | None = None,
) -> AsyncIterator[Service]:
    """Run the pipeline on `settings` while the block runs; with `record`, keep everything on the bus there too.

    With `metrics`, ``HOST:PORT``, it serves Prometheus's metrics and its health there.

    Leaving the block lets what is on an in-process bus reach the archive (a broker keeps it for the next process),
    then closes all doors.
    """
    data = settings.data
    data.mkdir(parents=True, exist_ok=True)
    alone = settings.bus == "memory"
    control = RunControl(drain=alone)
    run_id = uuid.uuid4().hex
    board, jobs = Board(), JobBoard()
    operator_keys_io.ensure(data)
    async with AsyncExitStack() as stack:
        bus = await open_bus(settings.bus, time.time_ns, boot_id=run_id, kafka=settings.kafka)
        stack.push_async_callback(bus.close)
        config = ArchiveConfig(
            target=settings.archive or str(data / "archive"),
            bus_id=getattr(bus, "cluster_id", "") or run_id,
            limits=LIVE,
            retention=settings.retention,
            spill_dir=str(data / "archive-spill"),
            kept_dir=str(data / "archive-kept"),
        )
        archive: Archive | ArchiveWork
        if alone:
            archive = Archive.open(config)
            stack.push_async_callback(archive.close)
        else:  # others may archive from this bus too, and go on where this process ends: positions and inserts are one
            archive = ArchiveWork.open(config)
            stack.callback(archive.close)
        upkeep = UpkeepThread.start(config.target, settings.retention)
        stack.push_async_callback(asyncio.to_thread, upkeep.close)
        http_port = _serve_sql(stack, settings, data)
        authority = pipeline.authority(settings, time.time_ns())
        path = pipeline.makers(settings, authority)
        commits = None if alone else CommitPolicy()
        running = Service(
            bus,
            board,
            data / LINK_SOCKET,
            http_port,
            data / JOBS,
            keys_io.load(data).public if authority else None,
            jobs=jobs,
            started_at_ns=time.time_ns(),
        )
        running.jobs_dir.mkdir(exist_ok=True)
        watchers = [
            *watchers,
            Watcher("board", Board.reads, _taker(board)),
            Watcher("jobs", JobBoard.reads, _taker(jobs)),
        ]
        shared = archive if isinstance(archive, ArchiveWork) else None
        if isinstance(archive, Archive):
            watchers.append(Watcher(ARCHIVE, EVERYTHING, archive.add))
        if record is not None:
            writer = RecordingWriter(record, time.time_ns, cluster=settings.cluster)
            stack.push_async_callback(writer.close)
            watchers.append(Watcher("recorder", EVERYTHING, _recorder(writer)))
        work = asyncio.create_task(
            live_io.run(bus, path, watchers, time.time_ns, control, commits=commits, archive=shared)
        )
        main = asyncio.current_task()
        work.add_done_callback(lambda done: _fail_loudly(done, main))
        stack.push_async_callback(_end, control, work)
        await asyncio.sleep(0.05)  # the stages subscribe before anything is published
        link = LinkServer(bus, running.link)
        await link.start()
        stack.push_async_callback(link.close)
        running.parts = [link, bus, *path, archive, upkeep, board, jobs, control]
        if metrics is not None:
            from sdfstream.runtime.metrics import ProcessStatus
            from sdfstream.runtime.metrics_io import serving

            told = ProcessStatus(
                control,
                list(dict.fromkeys([*(stage.name for stage in path), *(w.name for w in watchers), ARCHIVE])),
                running.parts,
            )
            await stack.enter_async_context(serving(metrics, told, getattr(bus, "ask", None)))
        publishing = Publishing(bus)
        stack.push_async_callback(publishing.close)
        answers = JobAnswers(
            jobs, publishing, operators=lambda: operator_keys_io.trusted(data), mode=settings.actuate.mode
        )
        gauges = lambda: (time.time_ns(), running.counters(), control.lag, _run(running, data))  # noqa: E731
        live = LiveServer(LiveAnswers(board, gauges, answers), data)
        await live.start()
        stack.push_async_callback(live.close)
        yield running


def _serve_sql(stack: AsyncExitStack, settings: Settings, data: Path) -> int:
    """Answer SQL over the embedded archive, which nobody else can open meanwhile; a server answers for itself."""
    if settings.archive is not None:
        return 0
    front = SqlFront.start(str(data / "archive"))
    stack.callback(front.close)
    write_endpoint(data, front.port)
    stack.callback(remove_endpoint, data)
    return front.port


def _taker(board: Board | JobBoard) -> Any:
    async def take(messages: Sequence[Message]) -> None:
        board.take(messages)

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


def _run(running: Service, data: Path) -> Mapping[str, Any]:
    return {"mode": "one process", "started_at_ns": running.started_at_ns, "data": str(data)}
