"""The one task that uses an agent's disk: writes what memory should not hold, loads what goes next, deletes the rest.

All of it happens in one thread, one step after the other, so that neither the agent's loop nor publishing ever waits
for a disk. A step that has begun is finished also when the agent stops, so that files and queues agree.
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

from sdfstream.agent.queues import OutputQueue, pop, queued, total_bytes
from sdfstream.agent.spill.files_io import Appended, SpillFolder
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")
T = TypeVar("T")

_PAUSE_S: Final = 5.0
"""Before the next try after the disk failed."""
_LAST_STEP_S: Final = 5.0
"""How long a stopping agent waits for a step that has begun."""


class SpillTask:
    """Moves outputs between queues and a `SpillFolder`.

    Parameters
    ----------
    spill : SpillFolder
    queues : sequence of OutputQueue
        Of the names that the folder knows, bulk last.
    counters : Counters
        ``spilled``, ``recovered``, ``shed``, ``spill-unreadable`` (topic; rows), ``spill-failed`` (what),
        ``spill-torn`` (bytes), ``refused`` (``segment``; rows that no file can hold).
    chunk_bytes : int
        Loaded ahead, per queue.
    moved : callable
        Called after every step that changed a queue.
    in_thread : callable, optional
        Called first by the thread.
    """

    def __init__(
        self,
        spill: SpillFolder,
        queues: Sequence[OutputQueue],
        counters: Counters,
        chunk_bytes: int,
        moved: Callable[[], None],
        in_thread: Callable[[], None] | None = None,
    ) -> None:
        self.folder = spill
        self.ready = asyncio.Event()
        """The folder was searched for outputs of an earlier run: publishing may begin."""
        self.excess_bytes = 0
        """How much of the queues' memory should go to disk."""
        self._queues = queues
        self._counters = counters
        self._chunk_bytes = chunk_bytes
        self._moved = moved
        self._pool = ThreadPoolExecutor(1, "spill", in_thread)
        self._helper = counters.troubles.helper("spill")
        self._wake = asyncio.Event()
        self._stopping = False
        self._opened = False
        self._failing = False
        self._retry_at_s = 0.0

    def wake(self) -> None:
        """Look for a step to do."""
        self._wake.set()

    @property
    def has_work(self) -> bool:
        """Whether there may be one: for as long as the bus takes everything at once there is none."""
        return self.excess_bytes > 0 or any(queue.acknowledged or queue.on_disk for queue in self._queues)

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
        if not task.done():  # a disk that hangs: outputs being written count as not written
            self._opened = False
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for queue in self._queues:
                queue.held.extendleft(reversed(queue.writing))
                queue.writing = []

    async def store_all(self) -> None:
        """After `stop`: write what is only in memory to disk, and release the folder."""
        if self._opened:
            for queue in self._queues:
                await self._acknowledge(queue)
                await self._secure(queue)
                await self._write(queue, total_bytes(queue.held))
            await self._in_thread(self.folder.close)
        self._pool.shutdown(wait=False)

    async def _rest(self) -> None:
        """Until `wake`, or until a disk that failed may be tried again."""
        left_s = self._retry_at_s - asyncio.get_running_loop().time()
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s if left_s > 0 else None):
                await self._wake.wait()
        self._wake.clear()

    async def _open(self) -> None:
        try:
            recovered = await self._in_thread(self.folder.open)
        except OSError as error:
            self._failed(error)
            self.ready.set()
            while not self._stopping and asyncio.get_running_loop().time() < self._retry_at_s:
                await self._rest()
        else:
            self._opened = True
            self._succeeded()
            for topic, rows in recovered.rows.items():
                self._counters.add("recovered", topic, rows)
            self._counters.add("spill-torn", "bytes", recovered.torn_bytes)
            if recovered.rows:
                _log.warning("%d rows that an earlier run could not publish follow", recovered.rows.total())
            self._refresh()
            self.ready.set()
            self._moved()

    async def _step(self) -> bool:
        """Do the most urgent step; False when there is none."""
        for queue in self._queues:
            if queue.acknowledged:
                await self._acknowledge(queue)
                return True
        for queue in self._queues:
            if queue.on_disk and total_bytes(queue.front) < self._chunk_bytes:
                await self._load(queue)
                return True
        if self.excess_bytes > 0 and asyncio.get_running_loop().time() >= self._retry_at_s:
            return await self._relieve()
        return False

    async def _relieve(self) -> bool:
        """Bring to disk what should not be in memory alone."""
        for queue in reversed(self._queues):
            await self._secure(queue)
            if asyncio.get_running_loop().time() < self._retry_at_s:
                return False
            if queue.held:
                await self._write(queue, max(self.excess_bytes, self._chunk_bytes))
                return True
        return False

    async def _secure(self, queue: OutputQueue) -> None:
        """Copy to disk the outputs of memory that are in flight or were put back."""
        items = [item for item in (*queue.in_flight, *queue.front) if item.segment is None]
        outputs = [item.output for item in items]
        if not items:
            return
        try:
            segment, n = await self._in_thread(lambda: self.folder.secure(queue.name, outputs))
        except Exception as error:  # whatever a disk does, the agent outlives it
            self._failed(error)
            return
        self._succeeded()
        for item in items[:n]:
            item.segment = segment
            if not any(item is other for other in (*queue.in_flight, *queue.front)):
                queue.release(item)  # published meanwhile
        self._refresh()

    async def _acknowledge(self, queue: OutputQueue) -> None:
        acknowledged, queue.acknowledged = queue.acknowledged, Counter()
        await self._in_thread(lambda: self.folder.acknowledge(queue.name, acknowledged))

    async def _load(self, queue: OutputQueue) -> None:
        # a quarter: on disk it is compressed
        loaded, lost = await self._in_thread(lambda: self.folder.load(queue.name, max(1, self._chunk_bytes // 4)))
        queue.front.extend(queued(output, segment) for segment, output in loaded)
        for topic, rows in lost.items():
            self._counters.add("spill-unreadable", topic, rows)
        self._refresh()
        self._moved()

    async def _write(self, queue: OutputQueue, max_bytes: int) -> None:
        queue.writing = pop(queue.held, max_bytes)
        if not queue.writing:
            return
        outputs = [item.output for item in queue.writing]
        try:
            appended = await self._in_thread(lambda: self.folder.append(queue.name, outputs))
        except Exception as error:  # whatever a disk does, the agent outlives it
            appended = Appended(error=error)
        queue.held.extendleft(reversed(queue.writing[appended.taken :]))
        queue.writing = []
        self._account(appended)
        self._refresh()
        self._moved()

    def _account(self, appended: Appended) -> None:
        for what, rows in (("spilled", appended.stored), ("shed", appended.shed)):
            for topic, n in rows.items():
                self._counters.add(what, topic, n)
        self._counters.add("refused", "spill", appended.refused.total())
        if appended.error is not None:
            self._failed(appended.error)
        else:
            self._succeeded()

    def _succeeded(self) -> None:
        self._counters.troubles.end("spill")
        if self._failing:
            self._failing = False
            _log.warning("%s takes outputs again", self.folder.folder)

    def _failed(self, error: Exception) -> None:
        self._retry_at_s = asyncio.get_running_loop().time() + _PAUSE_S
        number = error.errno if isinstance(error, OSError) else None
        self._counters.add("spill-failed", errno.errorcode.get(number or 0, type(error).__name__))
        why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
        self._counters.troubles.begin("spill", f"{self.folder.folder} takes nothing, outputs stay in memory: {why}")
        if not self._failing:
            self._failing = True
            _log.warning("%s takes nothing, outputs stay in memory: %s", self.folder.folder, error)

    def _refresh(self) -> None:
        for queue in self._queues:
            queue.on_disk = self.folder.records(queue.name)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        self._helper.begin(loop.time())
        try:
            return await loop.run_in_executor(self._pool, work)
        finally:
            self._helper.rest()
