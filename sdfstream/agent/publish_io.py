"""From the agent to the bus: a bounded buffer, so that a bus that is away costs old rows and never memory or time.

Two queues (`queues`), events and bulk, each with a loop of its own, so that an event never waits for rows. Every output
is numbered when it is put: one that is sent again, because the bus may have taken it or not, carries the same number,
and readers drop repeats.

With a spill (`files_io`), outputs beyond half of `max_bytes` go to disk, oldest first, and once the bus has been away
for ten seconds all do, so that an agent that is killed loses little. Without one, or while the disk
fails, the oldest bulk is shed beyond `max_bytes`. Where the bus answers but cannot keep up, rows are thinned out evenly
(`pressure`), so that what reaches it is fresh.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sdfstream.agent.pressure import Pressure, thin_out
from sdfstream.agent.queues import OutputQueue, PutRate, QueuedOutput, is_bulk, queued, total_bytes
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.agent.spill.segment import rows_of
from sdfstream.agent.spill.task_io import SpillTask
from sdfstream.errors import FormatError
from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

MAX_BYTES: Final = 16 << 20
"""Held in memory while the bus is away: 40 s of 1,440 exchanges a second, flushed twenty times a second."""
CATCH_UP_BYTES_S: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 20
"""Published at once: what a Kafka producer sends as one batch a partition, all of it or nothing."""
_LEAST_CHUNK_BYTES: Final = 64 << 10
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_AWAY_S: Final = 2.0
"""A publish that takes longer counts as a bus that is away."""
_RELIEVED_NS: Final = 5 * NS_PER_S
"""Without leaving out rows for so long, the bus keeps up again."""
_SPILL_AFTER_S: Final = 10.0
"""Once the bus has been away for longer, memory is written to disk every `_SWEEP_S`."""
_SWEEP_S: Final = 1.0


class OutputPublisher(Protocol):
    """Takes an agent's outputs: a bus, a recording, a test."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Take `outputs`, in order; returns when they are taken.

        Raises when they were not taken, or when that is not known: they come again, under the same numbers.
        FormatError means that one of them can never be taken.
        """


class Numbering(Protocol):
    """Numbers outputs (`bus.sequences.Numbers`)."""

    def take(self, topic: str, key: str) -> int:
        """The next number of (topic, key)."""


class PublishBuffer:
    """The outputs between the agent and its publisher.

    Parameters
    ----------
    publisher : OutputPublisher
    counters : Counters
        ``published`` and ``shed`` (topic; rows), ``thinned`` (what of ``shed`` a slow bus made go), ``publish-failed``
        (what), ``refused`` (why; rows), and those of `SpillTask`.
        Rows put in = published + shed + refused + unreadable on disk + still stored.
    max_bytes : int
        In memory, besides at most one chunk per queue that is in flight or was loaded from disk.
    numbers : Numbering, optional
        Numbers outputs, under `boot_id`; None: they stay unnumbered.
    boot_id : str
        Names this run of the agent.
    spill : SpillFolder, optional
        Stores what memory does not hold.
    catch_up_bytes_s : int
        After an outage bulk is published at this rate, or at twice the rate at which it is put, if that is more: a
        fleet must not overload its brokers when they are back.
    in_thread : callable, optional
        Called first by the disk's thread.
    """

    def __init__(
        self,
        publisher: OutputPublisher,
        counters: Counters,
        max_bytes: int = MAX_BYTES,
        *,
        numbers: Numbering | None = None,
        boot_id: str = "",
        spill: SpillFolder | None = None,
        catch_up_bytes_s: int = CATCH_UP_BYTES_S,
        in_thread: Callable[[], None] | None = None,
    ) -> None:
        self._publisher = publisher
        self._counters = counters
        self._max_bytes = max_bytes
        self._chunk_bytes = max(1, min(_CHUNK_BYTES, max_bytes // 8))
        self._numbers = numbers
        self._boot_id = boot_id
        self._catch_up_bytes_s = catch_up_bytes_s
        self._put_rate = PutRate()
        self._pressure = Pressure(min(_LEAST_CHUNK_BYTES, self._chunk_bytes), self._chunk_bytes)
        self._events, self._bulk = OutputQueue("event"), OutputQueue("bulk")
        self._queues = (self._events, self._bulk)
        self._wake = {queue.name: asyncio.Event() for queue in self._queues}
        self._held_bytes = 0
        """Held in memory by both queues; in flight, in front and being written have bounds of their own."""
        self._away_since_s: float | None = None
        self._thinned_at_ns = 0
        self._disk: SpillTask | None = None
        if spill is not None:
            self._disk = SpillTask(spill, self._queues, counters, self._chunk_bytes, self._refresh, in_thread)

    def put(self, outputs: Sequence[Output]) -> None:
        """Take outputs; never waits."""
        now_ns = time.monotonic_ns()
        for output in outputs:
            if self._numbers is not None and not output.boot_id:
                number = self._numbers.take(output.topic, output.key)
                output = Output(output.topic, output.key, output.body, self._boot_id, number)
            item, queue = queued(output), self._bulk if is_bulk(output) else self._events
            item.put_at_ns = now_ns
            queue.held.append(item)
            self._held_bytes += item.size_bytes
            self._put_rate.add(item.size_bytes)
            self._wake[queue.name].set()
        if outputs:
            self._enforce_bound()

    async def run(self) -> None:
        """Publish for ever."""
        disk = self._disk
        spilling = asyncio.create_task(disk.run()) if disk is not None else None
        tasks = [asyncio.create_task(self._publish(queue)) for queue in self._queues]
        tasks += [asyncio.create_task(self._sweep(disk))] if disk is not None else []
        try:
            # a step that the disk's task has begun is to be finished: it is not cancelled with the others
            await asyncio.gather(*tasks, *([asyncio.shield(spilling)] if spilling is not None else []))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if disk is not None and spilling is not None:
                await disk.stop(spilling)

    async def drain(self, timeout_s: float) -> None:
        """After `run` was cancelled: publish the rest, for at most `timeout_s`; what then remains goes to disk, and is
        counted as shed where there is none.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for queue in self._queues:
                    while queue.take(self._chunk_bytes) and await self._send(queue):
                        pass
        except TimeoutError:
            pass
        if self._disk is not None:
            await self._disk.store_all()
        for queue in self._queues:
            for item in (*queue.front, *queue.held):
                if item.segment is None:
                    self._shed(item)

    async def _publish(self, queue: OutputQueue) -> None:
        if self._disk is not None:
            await self._disk.ready.wait()
        wake, pause_s = self._wake[queue.name], _FIRST_PAUSE_S
        while True:
            await wake.wait()
            wake.clear()
            while self._take(queue):
                size, began_s = total_bytes(queue.in_flight), time.monotonic()
                if await self._send(queue):
                    pause_s = _FIRST_PAUSE_S
                    if queue is self._bulk:
                        self._pressure.took(size, time.monotonic() - began_s, time.monotonic_ns())
                        self._stay_fresh()
                    if queue is self._bulk and queue.behind():
                        await asyncio.sleep(size / self._rate())
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _take(self, queue: OutputQueue) -> list[QueuedOutput]:
        from_front = bool(queue.front)
        fresh = queue is self._bulk and not queue.behind()
        if queue is self._bulk and not fresh:
            self._pressure.back(time.monotonic_ns())  # rows wait for older ones, not for the bus
        taken = queue.take(self._pressure.chunk_bytes if fresh else self._chunk_bytes)
        self._held_bytes -= 0 if from_front else total_bytes(taken)
        return taken

    def _stay_fresh(self) -> None:
        """Thin out rows that wait because the bus cannot keep up; what an outage has left behind is kept."""
        held, now_ns = self._bulk.held, time.monotonic_ns()
        if self._bulk.behind() or not held or not self._pressure.is_late(held[0].put_at_ns, now_ns):
            if now_ns - self._thinned_at_ns > _RELIEVED_NS:
                self._counters.troubles.end("bus")
            return
        self._thinned_at_ns = now_ns
        for item in thin_out(held):
            self._held_bytes -= item.size_bytes
            self._counters.add("thinned", item.output.topic, rows_of(item.output.body))
            self._shed(item)
        self._counters.troubles.begin("bus", "it takes fewer rows than are made: the rest is left out, evenly")

    async def _send(self, queue: OutputQueue) -> bool:
        """Publish the outputs in flight; False: the bus did not take them, and a pause should follow."""
        loop = asyncio.get_running_loop()
        slow = loop.call_later(_AWAY_S, self._away, f"no answer for {_AWAY_S:.0f} s", loop.time())
        try:
            await self._publisher.publish([item.output for item in queue.in_flight])
        except (FormatError, UnicodeError) as error:
            self._refused(queue, error if isinstance(error, FormatError) else FormatError("unwritable", str(error)))
            return True
        except Exception as error:  # of any publisher: the agent outlives its failure
            queue.put_back()
            self._counters.add("publish-failed", type(error).__name__)
            if isinstance(error, OSError):
                self._counters.troubles.begin("publisher", f"it takes nothing: {error.strerror or error}")
            self._away(str(error), loop.time())
            return False
        except asyncio.CancelledError:
            queue.put_back()
            raise
        finally:
            slow.cancel()
        self._counters.troubles.end("publisher")
        for item in queue.complete():
            self._counters.add("published", item.output.topic, rows_of(item.output.body))
        self._back(queue)
        return True

    def _refused(self, queue: OutputQueue, error: FormatError) -> None:
        """One output in flight can never be taken: all go singly until it is found, and it is dropped."""
        if len(queue.in_flight) > 1:
            queue.put_back(one_by_one=True)
            return
        for item in queue.complete():
            self._counters.add("refused", error.reason, rows_of(item.output.body))
            _log.error("the bus can never take this output of %s: %s", item.output.topic, error)

    def _rate(self) -> float:
        return max(self._catch_up_bytes_s, 2.0 * self._put_rate.bytes_s(asyncio.get_running_loop().time()))

    def _away(self, why: str, since_s: float) -> None:
        self._pressure.lost()
        if self._away_since_s is not None:
            return
        self._away_since_s = since_s
        room = f"{self._max_bytes >> 20} MiB in memory"
        if self._disk is not None:
            room += f" and {self._disk.folder.max_bytes >> 20} MiB in {self._disk.folder.folder}"
        _log.warning("the bus is away, keeping up to %s: %s", room, why)

    def _back(self, queue: OutputQueue) -> None:
        if self._away_since_s is not None:
            self._away_since_s = None
            self._pressure.back(time.monotonic_ns())
            _log.warning("the bus is back%s", "; what was kept on disk follows" if queue.on_disk else "")
        if self._disk is not None and self._disk.has_work:
            self._disk.wake()

    async def _sweep(self, disk: SpillTask) -> None:
        """While the bus is away for long, write all of memory to disk every `_SWEEP_S`."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            since_s = self._away_since_s
            if since_s is not None and asyncio.get_running_loop().time() - since_s > _SPILL_AFTER_S:
                disk.excess_bytes = self._held_bytes
                disk.wake()

    def _refresh(self) -> None:
        """Adjust bound and wake-ups to queues that have changed."""
        self._held_bytes = sum(total_bytes(queue.held) for queue in self._queues)
        if self._disk is not None:
            self._disk.excess_bytes = min(self._disk.excess_bytes, self._held_bytes)
        self._enforce_bound()
        for wake in self._wake.values():
            wake.set()

    def _enforce_bound(self) -> None:
        if self._disk is not None and 2 * self._held_bytes > self._max_bytes:
            self._disk.excess_bytes = max(self._disk.excess_bytes, self._held_bytes - self._max_bytes // 4)
            self._disk.wake()
        while self._held_bytes > self._max_bytes:
            queue = self._bulk if self._bulk.held else self._events
            item = queue.held.popleft()
            self._held_bytes -= item.size_bytes
            self._shed(item)

    def _shed(self, item: QueuedOutput) -> None:
        self._counters.add("shed", item.output.topic, rows_of(item.output.body))
