"""The boards of a Kafka bus in a process of their own, which writes nothing there: what ``sdfstream serve`` runs.

It answers the read API, and the verbs at its data folder's socket (`top`, `status`, `findings`, `why`, `commands`).
States are read from the oldest message on (compacted topics, findings, overrides), everything else from now on: a
command in force is known once it is renewed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.stage_commits_io import StageCommits
from sdfstream.bus.open_io import open_bus
from sdfstream.errors import SdfError
from sdfstream.records.message import Message
from sdfstream.records.topics import FINDING, JOB, MESH, NIC, OUTCOME, OVERRIDE, QP, TOPOLOGY
from sdfstream.runtime import disk_io, live_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.runtime.live_io import Watcher
from sdfstream.runtime.loop_io import stop_on_signals
from sdfstream.runtime.metrics import ProcessStatus
from sdfstream.runtime.metrics_io import serving
from sdfstream.runtime.output_io import progress
from sdfstream.runtime.own_troubles import POLL_S, OwnTroubles
from sdfstream.serve.alerts_io import pushing
from sdfstream.serve.api.server_io import OFF
from sdfstream.serve.api_io import ProcessApi
from sdfstream.serve.job_queries_io import JobQueries
from sdfstream.serve.queries import PipelineQueries, detect_reached_ns, known_at_ns
from sdfstream.serve.query_io import QueryServer
from sdfstream.settings import Settings
from sdfstream.stats import HasCounters

STATES: Final = tuple(t.name for t in (TOPOLOGY, MESH, NIC, JOB, FINDING, OVERRIDE))
"""Read from the oldest message on."""
CHANGING: Final = tuple(sorted({*Board.reads, *JobBoard.reads} - {*STATES, QP.name}))
"""Read from the end on."""
_SETTLED_S: Final = 5.0


async def run(chosen: Settings, seconds: float | None, metrics: str | None) -> dict[str, int]:
    """Serve until SIGINT, SIGTERM or `seconds` have passed; the counters.

    Raises
    ------
    UnavailableError, BusError
        The brokers, the address of the API or the data folder cannot be used.
    """
    control = RunControl(drain=False)
    stop_on_signals(control.stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, control.stop.set)
    run_id = uuid.uuid4().hex
    bus = await open_bus(chosen.bus, time.time_ns, boot_id=run_id, kafka=chosen.kafka)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(bus.close)
        assert isinstance(bus, KafkaBus)
        reader = BoardReader(chosen, control, run_id[:8])
        counted: list[HasCounters] = [bus, reader.board, reader.jobs, reader.received, control]
        alerts = pushing(chosen.alerts, chosen.cluster, reader.board, reader.is_current, counted)
        await stack.enter_async_context(alerts)
        troubles = OwnTroubles(counted)
        looking = asyncio.create_task(_look(troubles), name="troubles")
        stack.callback(looking.cancel)
        status = ProcessStatus(
            control,
            [w.name for w in reader.watchers],
            counted,
            gauges=disk_io.gauges(chosen.data),
            troubles=troubles.sentences,
        )
        await stack.enter_async_context(serving(metrics, status, bus.ask))
        commits = StageCommits(bus)
        stack.push_async_callback(commits.close)
        following = asyncio.create_task(reader.follow(commits), name="stage commits")
        stack.callback(following.cancel)
        await reader.serve(stack)
        progress(f"reads {chosen.bus}; look: sdfstream top --data {chosen.data}\npage and API: {reader.url or OFF}")
        await live_io.run(bus, (), reader.watchers, time.time_ns, control)
    return {name: n for one in counted for name, n in one.counters.as_dict().items()}


async def _look(troubles: OwnTroubles) -> None:
    while True:
        troubles.look(time.monotonic(), time.time_ns())
        await asyncio.sleep(POLL_S)


class BoardReader:
    """Boards that are fed by a bus, and answer."""

    def __init__(self, chosen: Settings, control: RunControl, run: str) -> None:
        self.board = Board()
        self.jobs = JobBoard(self.board.notes)
        self.url: str | None = None
        self._chosen, self._control = chosen, control
        self._started_at_ns = time.time_ns()
        self._reached_at_ns: dict[str, int] = {}
        self._behind_at_s = time.monotonic()
        self._is_current = False
        archive = (str(chosen.data), chosen.archive) if chosen.archive is not None else None
        self._api = ProcessApi(self.board, self.jobs, self._instants, chosen.data, archive)
        self.received = self._api.received
        self.watchers = (
            Watcher(f"reader-{run}-states", STATES, self._take, from_start=True),
            Watcher(f"reader-{run}-now", CHANGING, self._take),
            Watcher(f"reader-{run}-notes", (OVERRIDE.name, OUTCOME.name), self._take_notes, from_start=True),
        )
        """Groups of this run alone: every reader reads everything."""

    async def serve(self, stack: AsyncExitStack) -> None:
        """Answer the verbs, and the API, until `stack` closes."""
        jobs = JobQueries(self.jobs, lambda _: False)
        server = QueryServer(PipelineQueries(self.board, self._figures, jobs), self._chosen.data)
        await server.start()
        stack.push_async_callback(server.close)
        if self._chosen.api != OFF:
            self.url = (await self._api.start(stack, self._chosen.api, None)).url

    async def follow(self, commits: StageCommits) -> None:
        """Learn how far the stages have come while the brokers answer; what is not known counts as not read."""
        while True:
            with suppress(SdfError):
                await commits.start()
                while True:
                    await commits.read(1000)
                    self._reached_at_ns = commits.reached_at_ns()
            await commits.close()
            await asyncio.sleep(2.0)

    def is_current(self) -> bool:
        """Whether states, findings and silences were read up to now once.

        With no lag for some seconds, since brokers that have not answered yet show none either.
        """
        now_s, from_oldest = time.monotonic(), [w.name for w in self.watchers if w.from_start]
        if not self._is_current and any(self._control.lag.get(name, 1) > 0 for name in from_oldest):
            self._behind_at_s = now_s
        self._is_current = self._is_current or now_s - self._behind_at_s >= _SETTLED_S
        return self._is_current

    async def _take(self, messages: Sequence[Message]) -> None:
        self.board.take(m for m in messages if m.topic in Board.reads)
        self.jobs.take(m for m in messages if m.topic in JobBoard.reads)
        await self._api.followers.take(messages)

    async def _take_notes(self, messages: Sequence[Message]) -> None:
        """Silences and labels from the oldest outcome on: one that was said before this process began still counts."""
        self.board.notes.take_all(messages)

    def _lag(self) -> dict[str, int]:
        return {"board": sum(self._control.lag.values())}

    def _reached(self) -> dict[str, int]:
        """Bus time that each task has reached; of detect, without a word from it, when this process began."""
        known = dict(self._reached_at_ns)
        if detect_reached_ns(known) is None:
            known["detect"] = self._started_at_ns
        return known

    def _instants(self) -> tuple[int, int, dict[str, int]]:
        now_ns, lag = time.time_ns(), self._lag()
        return now_ns, known_at_ns(self.board, now_ns, lag, self._reached()), lag

    def _figures(self) -> tuple[int, dict[str, int], dict[str, int], dict[str, Any]]:
        counters = self.board.counters.as_dict() | self.jobs.counters.as_dict()
        run = {"mode": "reader", "started_at_ns": self._started_at_ns, "data": str(self._chosen.data)}
        return time.time_ns(), counters, self._lag(), run | {"reached_at_ns": self._reached()}
