"""The archive on one task: from messages to acknowledged rows, each exactly once.

::

    task.read ──► InsertQueues ──► commit intents ──► insert with token ──► commit positions, remove intents
                   ▲  │                                    │ (and the next intents, by the same commit)
                   │  └── memory short, engine away:       │
                   │      rows to the spill                └── fails: again later, same token;
                   └── at the start: intents and                   refused for good: a failed insert on disk
                       files of the former owner

Every topic with an insert due takes part in one **round**, which costs one commit and one insert per topic. While the
engine's thread runs a round, the next messages are read. Why this neither loses nor doubles a row, wherever a process
dies, is in ``docs/decisions/0013-archive-intents.md``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.insert_io import Inserter
from sdfstream.archive.intent import NOTE_PREFIX, Intent
from sdfstream.archive.queues import InsertQueues, PendingInsert, left_behind
from sdfstream.archive.round_io import Round, RoundResult, RoundRunner
from sdfstream.archive.spill_io import Spill, SpillFile
from sdfstream.archive.task import ArchiveTask, StopFlag
from sdfstream.errors import ArchiveError, FormatError
from sdfstream.records.joins import JOINS
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

T = TypeVar("T")

RENEW_NS: Final = 10 * NS_PER_S
"""An intent this old is committed again before its insert is repeated: a process that stood still so long that another
owns its task learns it by this commit, thus before the insert."""
GONE_NS: Final = 10 * NS_PER_S
"""Messages of an intent count as lost once the bus has had nothing more to read for this long."""
SETTLE_NS: Final = 5 * NS_PER_S
"""Period of commits for positions that move without rows (repeats, the bus's own marks)."""
SPILL_FULL_NS: Final = NS_PER_S
"""Pause before a spill that was full is tried again."""
INSERT_S: Final = 120.0
"""A server may take long over one insert; beyond this its thread counts as starved."""
_BUSY_READ_S: Final = 0.02
_IDLE_READ_S: Final = 0.1
_MOST_MESSAGES: Final = 1000
_MESSAGE_BYTES: Final = 1 << 20
"""Size of a message in memory, until one was seen."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock and threads; tests pass others."""

    clock: Callable[[], int] = time.monotonic_ns
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    executor: Executor | None = None
    """Thread that uses the engine; None: the event loop's own, which then reads nothing meanwhile."""

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run `work` in the engine's thread."""
        if self.executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)


@dataclass(frozen=True, slots=True)
class ArchiveContext:
    """Engine, spill and settings of an archive, the same on every task."""

    config: ArchiveConfig
    counters: Counters
    inserter: Inserter
    spill: Spill
    environment: Environment
    only_copy: bool
    hurry: threading.Event
    """Set: every insert is due now."""


class ArchiveRun:
    """One archive on one task, from the former owner's last commit to `stop`."""

    def __init__(
        self, context: ArchiveContext, task: ArchiveTask, stop: StopFlag, on_step: Callable[[int], None]
    ) -> None:
        self._context = context
        self._runner = RoundRunner(
            context.config, context.inserter, context.spill, context.counters, only_copy=context.only_copy
        )
        self._environment = context.environment
        self._task = task
        self._stop = stop
        self._on_step = on_step
        self._counters = context.counters
        self._helper = context.counters.troubles.helper("archive insert", INSERT_S)
        self.queues = InsertQueues(context.config, task.saved.positions, context.counters)
        self._round: asyncio.Future[RoundResult] | None = None
        self._spilling: PendingInsert | None = None
        self._done: list[PendingInsert] = []
        """Inserts made or stored as failed; the next commit removes their intents."""
        self.held_bytes = 0
        """Bytes in memory and not yet safe after the last step; other threads may read it."""
        self.since_ns: int | None = None
        """When the oldest message not yet archived was read, likewise."""
        self._committed = dict(task.saved.positions)
        self._committed_ns = context.environment.clock()
        self._message_bytes = _MESSAGE_BYTES
        self._ending = False
        self._ended = False
        self._known_ns: int | None = None
        self._no_spill_before_ns = 0
        self._disk_refused = False

    async def run(self) -> None:
        """Recover what the former owner left, then step until `stop` is set and every row is safe."""
        try:
            with JOINS.retained():
                await self._recover()
                while not self._ended:
                    await self._step()
            if self._context.only_copy:
                for topic, rows in self.queues.rows_in_memory().items():
                    self._counters.add("lost", topic, rows)
        finally:
            if self._round is not None:
                await asyncio.wait({self._round})
                if not self._round.cancelled():
                    self._round.exception()  # a second failure: the first one is raised

    # -- recovery ---------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        await self._environment.blocking(self._context.inserter.restore)
        files = await self._environment.blocking(self._context.spill.scan)
        inserts = [_pending_insert(f) for f in files if f.only]  # the only copies: they go first
        saved = self._task.saved
        intents = {i.topic: i for name, note in saved.notes.items() if (i := self._intent(name, note)) is not None}
        ours = [_pending_insert(f) for f in files if not f.only and f.bus_id == self._context.config.bus_id]
        for topic in sorted({i.intent.topic for i in ours} | set(intents)):
            at = {p: position for (t, p), position in saved.positions.items() if t == topic}
            taken, overtaken = left_behind(intents.get(topic), [i for i in ours if i.intent.topic == topic], at)
            inserts += taken
            self._counters.add("redone", topic, int(topic in intents))
            for insert in overtaken:
                self._counters.add("spill-overtaken")
                await self._environment.blocking(partial(self._context.spill.remove, str(insert.file)))
        self.queues.adopt(inserts, self._environment.clock())

    def _intent(self, name: str, note: bytes) -> Intent | None:
        """The intent in a note, if it is one. What an unreadable one names may be inserted already: the run ends."""
        if not name.startswith(NOTE_PREFIX):
            return None
        try:
            return Intent.from_bytes(note)
        except FormatError as error:
            raise ArchiveError(f"the note {name} on the bus cannot be read ({error.detail})") from error

    # -- one step ---------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        if self._round is not None and self._round.done():
            self._helper.rest()
            self._take_result(self._round.result())
            self._round = None
        self._check_stop()
        if self._round is None:
            await self._begin_round()
        if self._round is None and self._ending and self._finished():
            self.held_bytes, self.since_ns = self.queues.bytes, self.queues.since_ns
            self._ended = True
            return
        await self._read()
        await asyncio.sleep(0)  # else a bus that always has messages would hide the end of the round
        self.held_bytes, self.since_ns = self.queues.bytes, self.queues.since_ns
        self._on_step(self.held_bytes)

    def _check_stop(self) -> None:
        if not self._ending and self._stop.is_set():
            self._ending = True
            self.queues.retry_now()

    def _finished(self) -> bool:
        if self.queues.empty or self._disk_refused:
            return True
        return self.queues.blocked and not (self._context.only_copy and self.queues.bytes)

    @property
    def _force(self) -> bool:
        return self._ending or self._context.hurry.is_set()

    async def _begin_round(self) -> None:
        """Commit what was inserted and what is intended, then let the engine's thread run the next round."""
        now_ns = self._environment.clock()
        inserts = self.queues.ready(now_ns, force=self._force)
        await self._commit_intents(inserts, now_ns)
        removals = [i.file for i in self._done if i.file is not None]
        self._done = []
        self._spilling = self.queues.surplus() if self._memory_short() else None
        if not (inserts or removals or self._spilling):
            return
        ping = any(self.queues.was_tried(i) for i in inserts)
        if self._environment.executor is not None:
            self._helper.begin(now_ns / NS_PER_S)
        round_ = Round(inserts, self._spilling, removals, ping, beyond=self._context.only_copy and self._ending)
        self._round = asyncio.ensure_future(self._environment.blocking(partial(self._runner.run, round_)))
        if self._environment.executor is None:
            await asyncio.wait({self._round})  # the task's `read` may block this thread

    async def _commit_intents(self, inserts: Sequence[PendingInsert], now_ns: int) -> None:
        """Remove the intents of inserts that are done, and add those of `inserts`, by one commit."""
        notes: dict[str, bytes | None] = {i.intent.note: None for i in self._done if i.intent.spans}
        for insert in inserts:
            if insert.intent.spans and (insert.intended_ns is None or now_ns - insert.intended_ns > RENEW_NS):
                notes[insert.intent.note] = insert.intent.to_bytes()
        if notes or now_ns - self._committed_ns > SETTLE_NS:
            await self._commit(notes)
            self._committed_ns = now_ns
        for insert in inserts:
            if insert.intent.note in notes:
                insert.intended_ns = now_ns

    async def _commit(self, notes: Mapping[str, bytes | None]) -> None:
        at = self.queues.positions()
        moved = {
            partition: position for partition, position in at.items() if self._committed.get(partition) != position
        }
        if notes or moved:
            await self._task.commit((), positions=moved, notes=notes)
            self._committed |= moved

    def _memory_short(self) -> bool:
        """Whether rows that cannot be inserted now go to the spill."""
        if self._environment.clock() < self._no_spill_before_ns:
            return False
        if self._context.only_copy and self._force:
            return True
        return self.queues.bytes > self._context.config.pending_bytes // 2

    async def _read(self) -> None:
        """Read from the task if there is room in memory; else wait a little.

        Recovery has twice the room: the messages it needs may come behind others that find no room.
        """
        room = self._context.config.pending_bytes * (2 if self.queues.recovering else 1) - self.queues.bytes
        if self._ending or room <= 0:
            await self._wait()
            return
        most = min(_MOST_MESSAGES, room // self._message_bytes + 1)
        messages = await self._task.read(max_messages=most, timeout_s=self._read_timeout_s())
        known = [m for m in messages if m.topic in ARCHIVED]
        self._counters.add("messages", n=len(known))
        self._counters.add("refused", "no-table", sum(m.rows for m in messages) - sum(m.rows for m in known))
        before = self.queues.bytes
        self.queues.add(known, self._task.positions(), self._environment.clock())
        if known:
            self._message_bytes = max(1024, (self.queues.bytes - before) // len(known))
        if self.queues.recovering and not messages:
            self._give_up_lost_messages()

    def _read_timeout_s(self) -> float:
        if self._round is not None:
            return _BUSY_READ_S
        wait_ns = self.queues.wait_ns(self._environment.clock())
        return _IDLE_READ_S if wait_ns is None else min(_IDLE_READ_S, wait_ns / NS_PER_S)

    async def _wait(self) -> None:
        if self._round is not None:
            await asyncio.wait({self._round})
        else:
            await self._environment.pause(max(0.001, self._read_timeout_s()))

    def _give_up_lost_messages(self) -> None:
        """Stop waiting for messages of an intent that the bus has had no more of for `GONE_NS`."""
        known_ns = self._task.known_until_ns()
        if known_ns is None:
            return
        if self._known_ns is None:
            self._known_ns = known_ns
        elif known_ns - self._known_ns > GONE_NS:
            self.queues.give_up_recovery()

    def _take_result(self, result: RoundResult) -> None:
        now_ns = self._environment.clock()
        for insert in result.inserted:
            self.queues.done(insert)
            self._done.append(insert)
            if insert.file is not None:
                self._counters.add("caught-up", insert.intent.topic, insert.intent.rows)
        for insert in result.failed:
            self.queues.failed(insert, now_ns)
        if self._spilling is None or self._spilling in result.inserted:
            return
        if result.spilled is not None:
            self.queues.spilled(self._spilling, result.spilled)
            self._counters.add("spilled", self._spilling.intent.topic, self._spilling.intent.rows)
            return
        self._no_spill_before_ns = now_ns + SPILL_FULL_NS
        self._disk_refused = self._ending


def _pending_insert(file: SpillFile) -> PendingInsert:
    """A file as a pending insert; the only copy of rows belongs to no range of this task's bus."""
    spans = {} if file.only else file.intent.spans
    intent = replace(file.intent, spans=spans)
    return PendingInsert(intent, 0, file=file.name)
