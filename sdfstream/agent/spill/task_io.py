"""The one task that uses an agent's disk: writes what memory should not hold, loads what goes next, deletes the rest.

All of it happens in one thread, one step after the other, so that neither the agent's loop nor publishing ever waits
for a disk. A step that has begun is finished also when the agent stops: files and lanes then say the same.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from sdfstream.agent.queues import Lane, item_of, pop, total
from sdfstream.agent.spill.files_io import SpillFolder, Wrote
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")
T = TypeVar("T")

_PAUSE_S: Final = 5.0
"""Before the next try after the disk failed."""
_LAST_STEP_S: Final = 5.0
"""How long a stopping agent waits for a step that has begun."""


class SpillTask:
    """Moves items between lanes and a `SpillFolder`.

    Parameters
    ----------
    spill : SpillFolder
    lanes : sequence of Lane
        Of the names that the folder knows, bulk last.
    counters : Counters
        ``spilled``, ``recovered``, ``shed``, ``spill-unreadable`` (topic; rows), ``spill-failed`` (what),
        ``spill-torn`` (bytes), ``refused`` (``segment``; rows that no file can hold).
    chunk_bytes : int
        Loaded ahead, per lane.
    moved : callable
        Told after every step: lanes have changed.
    in_thread : callable, optional
        What the thread does first.
    """

    def __init__(
        self,
        spill: SpillFolder,
        lanes: Sequence[Lane],
        counters: Counters,
        chunk_bytes: int,
        moved: Callable[[], None],
        in_thread: Callable[[], None] | None = None,
    ) -> None:
        self.folder = spill
        self.ready = asyncio.Event()
        """What an earlier run left was looked for: publishing may begin."""
        self.excess_bytes = 0
        """How much of what lanes hold should go to disk."""
        self._lanes = lanes
        self._counters = counters
        self._chunk_bytes = chunk_bytes
        self._moved = moved
        self._pool = ThreadPoolExecutor(1, "spill", in_thread)
        self._wake = asyncio.Event()
        self._stopping = False
        self._opened = False
        self._failing = False
        self._from_s = 0.0

    def wake(self) -> None:
        """Something may be to do."""
        self._wake.set()

    async def run(self) -> None:
        """Step until `stop`."""
        while not self._stopping:
            if not self._opened:
                await self._open()
            elif not await self._step():
                await self._rest()

    async def stop(self, task: asyncio.Task[None]) -> None:
        """End `run`, which is `task`, once the step that it has begun is done."""
        self._stopping = True
        self._wake.set()
        await asyncio.wait({task}, timeout=_LAST_STEP_S)
        if not task.done():  # a disk that hangs: what it was given counts as not written
            self._opened = False
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for lane in self._lanes:
                lane.held.extendleft(reversed(lane.writing))
                lane.writing = []

    async def keep_all(self) -> None:
        """After `stop`: what is only in memory goes to disk, and the folder is let go."""
        if self._opened:
            for lane in self._lanes:
                await self._forget(lane)
                await self._secure(lane)
                await self._write(lane, total(lane.held))
            await self._in_thread(self.folder.close)
        self._pool.shutdown(wait=False)

    async def _rest(self) -> None:
        """Until something may be to do, or a disk that failed may be tried again."""
        left_s = self._from_s - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s if left_s > 0 else None):
                await self._wake.wait()
        self._wake.clear()

    async def _open(self) -> None:
        try:
            found = await self._in_thread(self.folder.open)
        except OSError as error:
            self._failed(error)
            self.ready.set()
            while not self._stopping and asyncio.get_running_loop().time() < self._from_s:
                await self._rest()
        else:
            self._opened = True
            for topic, rows in found.rows.items():
                self._counters.add("recovered", topic, rows)
            self._counters.add("spill-torn", "bytes", found.torn_bytes)
            if found.rows:
                _log.warning("%d rows that an earlier run could not publish follow", found.rows.total())
            self._look()
            self.ready.set()
            self._moved()

    async def _step(self) -> bool:
        """Do the most urgent thing; False when there is none."""
        for lane in self._lanes:
            if lane.acknowledged:
                await self._forget(lane)
                return True
        for lane in self._lanes:
            if lane.on_disk and total(lane.front) < self._chunk_bytes:
                await self._load(lane)
                return True
        if self.excess_bytes > 0 and asyncio.get_running_loop().time() >= self._from_s:
            return await self._relieve()
        return False

    async def _relieve(self) -> bool:
        """Bring to disk what should not be in memory alone."""
        for lane in reversed(self._lanes):
            await self._secure(lane)
            if asyncio.get_running_loop().time() < self._from_s:
                return False
            if lane.held:
                await self._write(lane, max(self.excess_bytes, self._chunk_bytes))
                return True
        return False

    async def _secure(self, lane: Lane) -> None:
        """A copy to disk of what came from memory and is in flight, or came back."""
        items = [item for item in (*lane.flying, *lane.front) if item.segment is None]
        outputs = [item.output for item in items]
        if not items:
            return
        try:
            segment, n = await self._in_thread(lambda: self.folder.secure(lane.name, outputs))
        except Exception as error:  # whatever a disk does, the agent outlives it
            self._failed(error)
            return
        self._works()
        for item in items[:n]:
            item.segment = segment
            if not any(item is other for other in (*lane.flying, *lane.front)):
                lane.release(item)  # it landed meanwhile
        self._look()

    async def _forget(self, lane: Lane) -> None:
        acknowledged, lane.acknowledged = lane.acknowledged, Counter()
        await self._in_thread(lambda: self.folder.done(lane.name, acknowledged))

    async def _load(self, lane: Lane) -> None:
        # a quarter: on disk it is compressed
        found, lost = await self._in_thread(lambda: self.folder.load(lane.name, max(1, self._chunk_bytes // 4)))
        lane.front.extend(item_of(output, segment) for segment, output in found)
        for topic, rows in lost.items():
            self._counters.add("spill-unreadable", topic, rows)
        self._look()
        self._moved()

    async def _write(self, lane: Lane, max_bytes: int) -> None:
        lane.writing = pop(lane.held, max_bytes)
        if not lane.writing:
            return
        outputs = [item.output for item in lane.writing]
        try:
            wrote = await self._in_thread(lambda: self.folder.append(lane.name, outputs))
        except Exception as error:  # whatever a disk does, the agent outlives it
            wrote = Wrote(error=error)
        lane.held.extendleft(reversed(lane.writing[wrote.taken :]))
        lane.writing = []
        self._account(wrote)
        self._look()
        self._moved()

    def _account(self, wrote: Wrote) -> None:
        for what, rows in (("spilled", wrote.kept), ("shed", wrote.shed)):
            for topic, n in rows.items():
                self._counters.add(what, topic, n)
        self._counters.add("refused", "spill", wrote.refused.total())
        if wrote.error is not None:
            self._failed(wrote.error)
        else:
            self._works()

    def _works(self) -> None:
        if self._failing:
            self._failing = False
            _log.warning("%s takes outputs again", self.folder.folder)

    def _failed(self, error: Exception) -> None:
        self._from_s = asyncio.get_running_loop().time() + _PAUSE_S
        number = error.errno if isinstance(error, OSError) else None
        self._counters.add("spill-failed", errno.errorcode.get(number or 0, type(error).__name__))
        if not self._failing:
            self._failing = True
            _log.warning("%s takes nothing, outputs stay in memory: %s", self.folder.folder, error)

    def _look(self) -> None:
        for lane in self._lanes:
            lane.on_disk = self.folder.records(lane.name)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)
