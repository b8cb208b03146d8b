"""The archive at work: from a task's messages to acknowledged rows, each exactly once.

::

    task.read ──► Lanes ──► commit intents ──► insert with token ──► commit positions, take intents back
                   ▲  │                              │ (and the next intents, by the same commit)
                   │  └── memory short, engine away: │
                   │      rows to the spill          └── fails: again later, same token; refused for good: kept
                   └── at the start: intents and files of whoever was here before

Rounds: every topic whose time has come takes part in one round, which costs one commit and one insert per topic.
While a round is at the engine, in a thread of its own, the next messages are read. Why this loses and doubles
nothing, wherever it is cut off, is in ``docs/decisions/0013-archive-intents.md``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.insert_io import Inserter
from sdfstream.archive.intent import NOTE_PREFIX, Intent
from sdfstream.archive.lanes import Entry, Lanes, left_behind
from sdfstream.archive.round_io import Came, Hands, Round
from sdfstream.archive.spill_io import Spill, SpillFile
from sdfstream.archive.task import Stop, Task
from sdfstream.errors import ArchiveError, FormatError
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

T = TypeVar("T")

RENEW_NS: Final = 10 * NS_PER_S
"""An intent this old is committed again before its insert is tried again: a process that was held up so long that
another took its place learns it here, before it inserts and not after."""
GONE_NS: Final = 10 * NS_PER_S
"""What an intent names is taken for lost once the bus has given out everything for this much longer."""
SETTLE_NS: Final = 5 * NS_PER_S
"""Positions that move without rows (repeats, the bus's own marks) are committed that often."""
SPILL_FULL_NS: Final = NS_PER_S
"""So long nothing is written to a spill that was full."""
_BUSY_READ_S: Final = 0.02
_IDLE_READ_S: Final = 0.1
_MOST_MESSAGES: Final = 1000
_MESSAGE_BYTES: Final = 1 << 20
"""First guess; then what was seen."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The clock and the threads; tests hand in others."""

    clock: Callable[[], int] = time.monotonic_ns
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    executor: Executor | None = None
    """Where the engine is used; None: in the loop itself, which then reads nothing meanwhile."""

    async def blocking(self, work: Callable[[], T]) -> T:
        """Run `work` where the engine is used."""
        if self.executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)


@dataclass(frozen=True, slots=True)
class Tools:
    """What an archive has, whichever task it works on."""

    config: ArchiveConfig
    counters: Counters
    inserter: Inserter
    spill: Spill
    around: Surroundings
    only_copy: bool
    hurry: threading.Event


class Run:
    """The archive on one task."""

    def __init__(self, work: Tools, task: Task, stop: Stop, on_turn: Callable[[int], None]) -> None:
        self._work = work
        self._hands = Hands(work.config, work.inserter, work.spill, work.counters, only_copy=work.only_copy)
        self._around = work.around
        self._task = task
        self._stop = stop
        self._on_turn = on_turn
        self._counters = work.counters
        self.lanes = self._lanes = Lanes(work.config, task.saved.positions, work.counters)
        self._round: asyncio.Future[Came] | None = None
        self._spilling: Entry | None = None
        self._done: list[Entry] = []
        """Inserted or kept; the next commit says so."""
        self.held_bytes = 0
        """In memory and not yet safe, when the last turn ended; other threads may look."""
        self.since_ns: int | None = None
        """Likewise, when the oldest message on its way was read."""
        self._committed = dict(task.saved.positions)
        self._committed_ns = work.around.clock()
        self._message_bytes = _MESSAGE_BYTES
        self._ending = False
        self._ended = False
        self._known_ns: int | None = None
        self._no_spill_before_ns = 0
        self._disk_refused = False

    async def go(self) -> None:
        """Begin where the last owner left off, then turn by turn to the end."""
        try:
            await self._find()
            while not self._ended:
                await self._turn()
            if self._work.only_copy:
                for topic, rows in self._lanes.rows_in_memory().items():
                    self._counters.add("lost", topic, rows)
        finally:
            if self._round is not None:
                await asyncio.wait({self._round})
                if not self._round.cancelled():
                    self._round.exception()  # it may have one of its own; the first is what is told

    # -- where the last owner left off ------------------------------------------------------------------------

    async def _find(self) -> None:
        await self._around.blocking(self._work.inserter.restore)
        files = await self._around.blocking(self._work.spill.scan)
        entries = [_entry_of(f) for f in files if f.only]  # nobody else has these: they go first
        saved = self._task.saved
        intents = {i.topic: i for name, note in saved.notes.items() if (i := self._intent(name, note)) is not None}
        ours = [_entry_of(f) for f in files if not f.only and f.bus_id == self._work.config.bus_id]
        for topic in sorted({e.intent.topic for e in ours} | set(intents)):
            at = {p: position for (t, p), position in saved.positions.items() if t == topic}
            taken, overtaken = left_behind(intents.get(topic), [e for e in ours if e.intent.topic == topic], at)
            entries += taken
            self._counters.add("redone", topic, int(topic in intents))
            for entry in overtaken:
                self._counters.add("spill-overtaken")
                await self._around.blocking(partial(self._work.spill.remove, str(entry.file)))
        self._lanes.adopt(entries, self._around.clock())

    def _intent(self, name: str, note: bytes) -> Intent | None:
        """The intent in a note. One that we cannot read may have been made: then nothing may be inserted."""
        if not name.startswith(NOTE_PREFIX):
            return None
        try:
            return Intent.from_bytes(note)
        except FormatError as error:
            raise ArchiveError(f"the note {name} on the bus cannot be read ({error.detail})") from error

    # -- one turn ---------------------------------------------------------------------------------------------

    async def _turn(self) -> None:
        if self._round is not None and self._round.done():
            self._came(self._round.result())
            self._round = None
        self._look_at_stop()
        if self._round is None:
            await self._begin()
        if self._round is None and self._ending and self._nothing_more():
            self.held_bytes, self.since_ns = self._lanes.bytes, self._lanes.since_ns
            self._ended = True
            return
        await self._read()
        await asyncio.sleep(0)  # a bus that always has messages would never let the round be seen to end
        self.held_bytes, self.since_ns = self._lanes.bytes, self._lanes.since_ns
        self._on_turn(self.held_bytes)

    def _look_at_stop(self) -> None:
        if not self._ending and self._stop.is_set():
            self._ending = True
            self._lanes.retry_now()

    def _nothing_more(self) -> bool:
        if self._lanes.empty or self._disk_refused:
            return True
        return self._lanes.held_up and not (self._work.only_copy and self._lanes.bytes)

    @property
    def _force(self) -> bool:
        return self._ending or self._work.hurry.is_set()

    async def _begin(self) -> None:
        """Say what was done and what will be, by one commit, then let the engine's thread do it."""
        now_ns = self._around.clock()
        inserts = self._lanes.ready(now_ns, force=self._force)
        notes: dict[str, bytes | None] = {e.intent.note: None for e in self._done if e.intent.spans}
        for entry in inserts:
            if entry.intent.spans and (entry.intended_ns is None or now_ns - entry.intended_ns > RENEW_NS):
                notes[entry.intent.note] = entry.intent.to_bytes()
        if notes or now_ns - self._committed_ns > SETTLE_NS:
            await self._commit(notes)
            self._committed_ns = now_ns
        for entry in inserts:
            if entry.intent.note in notes:
                entry.intended_ns = now_ns
        removals = [e.file for e in self._done if e.file is not None]
        self._done = []
        self._spilling = self._lanes.surplus() if self._memory_short() else None
        if not (inserts or removals or self._spilling):
            return
        ping = any(self._lanes.tried(e) for e in inserts)
        round_ = Round(inserts, self._spilling, removals, ping, beyond=self._work.only_copy and self._ending)
        self._round = asyncio.ensure_future(self._around.blocking(partial(self._hands.do, round_)))
        if self._around.executor is None:
            await asyncio.wait({self._round})  # the task's `read` may block this thread

    async def _commit(self, notes: Mapping[str, bytes | None]) -> None:
        at = self._lanes.positions()
        moved = {part: position for part, position in at.items() if self._committed.get(part) != position}
        if notes or moved:
            await self._task.commit((), positions=moved, notes=notes)
            self._committed |= moved

    def _memory_short(self) -> bool:
        """Whether rows that cannot be inserted now should go to disk."""
        if self._around.clock() < self._no_spill_before_ns:
            return False
        if self._work.only_copy and self._force:
            return True
        return self._lanes.bytes > self._work.config.pending_bytes // 2

    async def _read(self) -> None:
        """Take what the task gives, if there is room for it; else let a little time go by.

        While an entry is being found there is twice the room: what it needs may come behind what has no room.
        """
        room = self._work.config.pending_bytes * (2 if self._lanes.finding else 1) - self._lanes.bytes
        if self._ending or room <= 0:
            await self._wait()
            return
        most = min(_MOST_MESSAGES, room // self._message_bytes + 1)
        messages = await self._task.read(max_messages=most, timeout_s=self._patience_s())
        known = [m for m in messages if m.topic in ARCHIVED]
        self._counters.add("messages", n=len(known))
        self._counters.add("refused", "no-table", sum(m.rows for m in messages) - sum(m.rows for m in known))
        before = self._lanes.bytes
        self._lanes.add(known, self._task.positions(), self._around.clock())
        if known:
            self._message_bytes = max(1024, (self._lanes.bytes - before) // len(known))
        if self._lanes.finding and not messages:
            self._look_whether_gone()

    def _patience_s(self) -> float:
        if self._round is not None:
            return _BUSY_READ_S
        wait_ns = self._lanes.wait_ns(self._around.clock())
        return _IDLE_READ_S if wait_ns is None else min(_IDLE_READ_S, wait_ns / NS_PER_S)

    async def _wait(self) -> None:
        if self._round is not None:
            await asyncio.wait({self._round})
        else:
            await self._around.pause(max(0.001, self._patience_s()))

    def _look_whether_gone(self) -> None:
        """The bus is silent while an intent waits for its messages: if it has no more of them, they are gone."""
        known_ns = self._task.known_until_ns()
        if known_ns is None:
            return
        if self._known_ns is None:
            self._known_ns = known_ns
        elif known_ns - self._known_ns > GONE_NS:
            self._lanes.give_up_finding()

    def _came(self, came: Came) -> None:
        now_ns = self._around.clock()
        for entry in came.inserted:
            self._lanes.done(entry)
            self._done.append(entry)
            if entry.file is not None:
                self._counters.add("caught-up", entry.intent.topic, entry.intent.rows)
        for entry in came.failed:
            self._lanes.failed(entry, now_ns)
        if self._spilling is None or self._spilling in came.inserted:
            return
        if came.spilled is not None:
            self._lanes.spilled(self._spilling, came.spilled)
            self._counters.add("spilled", self._spilling.intent.topic, self._spilling.intent.rows)
            return
        self._no_spill_before_ns = now_ns + SPILL_FULL_NS
        self._disk_refused = self._ending


def _entry_of(file: SpillFile) -> Entry:
    """A file as an entry; rows that nobody else has belong to no range of this task's bus."""
    spans = {} if file.only else file.intent.spans
    intent = replace(file.intent, spans=spans)
    return Entry(intent, 0, file=file.name)
