"""From the agent to the bus: a bounded buffer, so that a bus that is away costs old rows and never memory or time.

Two lanes (`queues`), events and bulk, each with a loop of its own, so that an event never waits for rows. Every output
gets its number when it comes in: one that is sent again, because nobody knows whether the bus took it, carries the same
one, and readers drop it.

With a spill (`files_io`), what memory holds beyond half of `max_bytes` goes to disk, oldest first, and once the bus has
been away for ten seconds everything does, so that an agent that is killed loses little. Without one, or while the disk
fails, the oldest bulk is shed beyond `max_bytes`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from sdfstream.agent.queues import Item, Lane, PutRate, is_bulk, item_of, total
from sdfstream.agent.spill.files_io import SpillFolder
from sdfstream.agent.spill.segment import rows_of
from sdfstream.agent.spill.task_io import SpillTask
from sdfstream.errors import FormatError
from sdfstream.records.message import Output
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

MAX_BYTES: Final = 16 << 20
"""Kept in memory while the bus is away: 40 s of 1,440 exchanges a second, flushed ten times a second."""
CATCH_UP_BYTES_S: Final = 8 << 20
_CHUNK_BYTES: Final = 1 << 20
"""Published at once: what a Kafka producer sends as one batch a partition, all of it or nothing."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0
_AWAY_S: Final = 2.0
"""A publish that takes longer means that the bus is away."""
_KEEP_S: Final = 10.0
"""Once the bus is away for longer, what is in memory goes to disk every `_SWEEP_S`."""
_SWEEP_S: Final = 1.0


class Publisher(Protocol):
    """Takes an agent's outputs: a bus, a recording, a test."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Take `outputs`, in order; returns when they are taken.

        Raises when they were not taken, or when that is not known: they come again, under the same numbers.
        FormatError means that one of them can never be taken.
        """


class Numbering(Protocol):
    """Gives out numbers (`bus.sequences.Numbers`)."""

    def take(self, topic: str, key: str) -> int:
        """The next number of (topic, key)."""


class PublishBuffer:
    """Outputs on their way to the publisher.

    Parameters
    ----------
    publisher : Publisher
    counters : Counters
        ``published`` and ``shed`` (topic; rows), ``publish-failed`` (what), ``refused`` (why; rows), and those of
        `SpillTask`. Rows put in = published + shed + refused + unreadable on disk + still kept.
    max_bytes : int
        In memory, besides at most one chunk per lane that is in flight or was loaded from disk.
    numbers : Numbering, optional
        Numbers outputs, under `boot_id`; None: they go as they come.
    boot_id : str
        Names this run of the agent.
    spill : SpillFolder, optional
        Keeps what memory does not.
    catch_up_bytes_s : int
        After an outage bulk goes at this rate, or at twice the rate at which it comes, if that is more: a fleet must
        not fall on its brokers at once when they are back.
    in_thread : callable, optional
        What the disk's thread does first.
    """

    def __init__(
        self,
        publisher: Publisher,
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
        self._came = PutRate()
        self._events, self._bulk = Lane("event"), Lane("bulk")
        self._lanes = (self._events, self._bulk)
        self._wake = {lane.name: asyncio.Event() for lane in self._lanes}
        self._held_bytes = 0
        """Of what both lanes hold; what is in flight, in front or being written is bounded by itself."""
        self._away_since_s: float | None = None
        self._disk: SpillTask | None = None
        if spill is not None:
            self._disk = SpillTask(spill, self._lanes, counters, self._chunk_bytes, self._look, in_thread)

    def put(self, outputs: Sequence[Output]) -> None:
        """Take outputs; never waits."""
        for output in outputs:
            if self._numbers is not None and not output.boot_id:
                number = self._numbers.take(output.topic, output.key)
                output = Output(output.topic, output.key, output.body, self._boot_id, number)
            item, lane = item_of(output), self._bulk if is_bulk(output) else self._events
            lane.held.append(item)
            self._held_bytes += item.weight
            self._came.add(item.weight)
            self._wake[lane.name].set()
        if outputs:
            self._keep_bound()

    async def run(self) -> None:
        """Publish for ever."""
        disk = self._disk
        spilling = asyncio.create_task(disk.run()) if disk is not None else None
        tasks = [asyncio.create_task(self._publish(lane)) for lane in self._lanes]
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
        """After `run` was cancelled: publish what is left, at most for `timeout_s`; what then remains goes to disk, and
        is counted as shed where there is none.
        """
        try:
            async with asyncio.timeout(timeout_s):
                for lane in self._lanes:
                    while lane.take(self._chunk_bytes) and await self._send(lane):
                        pass
        except TimeoutError:
            pass
        if self._disk is not None:
            await self._disk.keep_all()
        for lane in self._lanes:
            for item in (*lane.front, *lane.held):
                if item.segment is None:
                    self._shed(item)

    async def _publish(self, lane: Lane) -> None:
        if self._disk is not None:
            await self._disk.ready.wait()
        wake, pause_s = self._wake[lane.name], _FIRST_PAUSE_S
        while True:
            await wake.wait()
            wake.clear()
            while self._take(lane):
                size = total(lane.flying)
                if await self._send(lane):
                    pause_s = _FIRST_PAUSE_S
                    if lane is self._bulk and lane.behind():
                        await asyncio.sleep(size / self._rate())
                else:
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _take(self, lane: Lane) -> list[Item]:
        from_front = bool(lane.front)
        taken = lane.take(self._chunk_bytes)
        self._held_bytes -= 0 if from_front else total(taken)
        return taken

    async def _send(self, lane: Lane) -> bool:
        """Publish what is in flight; False when a pause should follow."""
        loop = asyncio.get_running_loop()
        slow = loop.call_later(_AWAY_S, self._away, f"no answer for {_AWAY_S:.0f} s", loop.time())
        try:
            await self._publisher.publish([item.output for item in lane.flying])
        except FormatError as error:
            self._refused(lane, error)
            return True
        except Exception as error:  # whatever the publisher is, the agent outlives its failure
            lane.came_back()
            self._counters.add("publish-failed", type(error).__name__)
            self._away(str(error), loop.time())
            return False
        except asyncio.CancelledError:
            lane.came_back()
            raise
        finally:
            slow.cancel()
        for item in lane.landed():
            self._counters.add("published", item.output.topic, rows_of(item.output.body))
        self._back(lane)
        return True

    def _refused(self, lane: Lane, error: FormatError) -> None:
        """One of those in flight can never be taken: it goes, the others follow singly until it is found."""
        if len(lane.flying) > 1:
            lane.came_back(one_by_one=True)
            return
        for item in lane.landed():
            self._counters.add("refused", error.reason, rows_of(item.output.body))
            _log.error("the bus can never take this output of %s: %s", item.output.topic, error)

    def _rate(self) -> float:
        return max(self._catch_up_bytes_s, 2.0 * self._came.bytes_s(asyncio.get_running_loop().time()))

    def _away(self, why: str, since_s: float) -> None:
        if self._away_since_s is not None:
            return
        self._away_since_s = since_s
        kept = f"{self._max_bytes >> 20} MiB in memory"
        if self._disk is not None:
            kept += f" and {self._disk.folder.max_bytes >> 20} MiB in {self._disk.folder.folder}"
        _log.warning("the bus is away, keeping up to %s: %s", kept, why)

    def _back(self, lane: Lane) -> None:
        if self._away_since_s is not None:
            self._away_since_s = None
            _log.warning("the bus is back%s", "; what was kept on disk follows" if lane.on_disk else "")
        if self._disk is not None:
            self._disk.wake()

    async def _sweep(self, disk: SpillTask) -> None:
        """While the bus is away for long, bring everything to disk again and again."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            since_s = self._away_since_s
            if since_s is not None and asyncio.get_running_loop().time() - since_s > _KEEP_S:
                disk.excess_bytes = self._held_bytes
                disk.wake()

    def _look(self) -> None:
        """Lanes have changed."""
        self._held_bytes = sum(total(lane.held) for lane in self._lanes)
        if self._disk is not None:
            self._disk.excess_bytes = min(self._disk.excess_bytes, self._held_bytes)
        self._keep_bound()
        for wake in self._wake.values():
            wake.set()

    def _keep_bound(self) -> None:
        if self._disk is not None and 2 * self._held_bytes > self._max_bytes:
            self._disk.excess_bytes = max(self._disk.excess_bytes, self._held_bytes - self._max_bytes // 4)
            self._disk.wake()
        while self._held_bytes > self._max_bytes:
            lane = self._bulk if self._bulk.held else self._events
            item = lane.held.popleft()
            self._held_bytes -= item.weight
            self._shed(item)

    def _shed(self, item: Item) -> None:
        self._counters.add("shed", item.output.topic, rows_of(item.output.body))
