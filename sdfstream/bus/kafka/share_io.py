"""Assignment of units to processes by Kafka's group membership, over the partitions of the checkpoint topic.

A process that takes part in a stage's work is a member of the group ``<stage>.members``: the member assigned partition
u of the checkpoint topic has unit u. With a `member` name membership is static: a process that is back within the
session's time-out finds its units as they were. Membership alone would not be exact (a process that stood still counts
itself an owner for a while); the fence of the task's transactions is. When a unit may be opened: `ownership`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.member_io import Member
from sdfstream.bus.kafka.ownership import Ownership
from sdfstream.bus.task import Stop, Task, Work
from sdfstream.errors import BusError, SdfError
from sdfstream.records.topics import CHECKPOINT

log = logging.getLogger("sdfstream.bus")

_AGAIN_S: Final = 0.5
_LONGEST_AGAIN_S: Final = 10.0


class TaskClient(KafkaClient, Protocol):
    """A client that opens tasks."""

    async def task(self, work: Work, unit: int = 0) -> Task:
        """See `sdfstream.bus.Bus.task`."""


class Runs:
    """The units of this process, and the asyncio task that runs each."""

    def __init__(
        self, bus: TaskClient, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, member: str = ""
    ) -> None:
        topic = bus.config.prefix + CHECKPOINT.name
        instance = f"{work.name}.{member}" if member else ""
        self.member = Member(bus, f"{work.name}.members", topic, work.units, instance, self.assign)
        self.going: dict[int, asyncio.Task[None]] = {}
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ownership = Ownership()
        self._ending: dict[int, asyncio.Task[None]] = {}
        """The former run of a unit, cancelled."""
        self._bus = bus
        self._work = work
        self._run = run
        self._stop = stop
        self._closed = False

    def assign(self, units: set[int], generation: int) -> None:
        """Run exactly `units`: cancel the runs of others, start those of new ones."""
        if self._closed:
            return
        units = {unit for unit in units if unit < self._work.units}
        log.info("%s: units %s of %d", self._work.name, sorted(units), self._work.units)
        self._ownership.assigned(units, generation)
        for unit in self.going.keys() - units:
            self._ending[unit] = self.going.pop(unit)
            self._ending[unit].cancel()
        for unit in units - self.going.keys():
            task = asyncio.create_task(self._unit(unit, self._ending.pop(unit, None)), name=f"{self._work.name}/{unit}")
            task.add_done_callback(partial(self._ended))
            self.going[unit] = task

    async def close(self) -> None:
        """Cancel what still runs, and leave the group."""
        self._closed = True
        every = [*self.going.values(), *self._ending.values()]
        for task in every:
            task.cancel()
        await asyncio.gather(*every, return_exceptions=True)
        await self.member.leave()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _unit(self, unit: int, former: asyncio.Task[None] | None) -> None:
        """Run one unit until `stop`; after an `SdfError` it begins again from its last commit."""
        if former is not None:
            await asyncio.wait({former})
        pause_s = _AGAIN_S
        while await self._confirmed(unit):
            began_s = asyncio.get_running_loop().time()
            try:
                await self._run_once(unit)
            except SdfError as error:
                if asyncio.get_running_loop().time() - began_s > 30:
                    pause_s = _AGAIN_S
                self._bus.counters.add("task-restarted", f"{self._work.name}/{unit}")
                log.warning("%s/%d stopped (%s); again in %.1f s", self._work.name, unit, error, pause_s)
                await self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_AGAIN_S)

    async def _run_once(self, unit: int) -> None:
        try:
            task = await self._bus.task(self._work, unit)
            try:
                await self._run(task)
            finally:
                await task.close()
        finally:
            self._ownership.ended(unit)

    async def _confirmed(self, unit: int) -> bool:
        """Wait until `unit` may be opened; False: it is time to end, or the unit was taken from this run."""
        while not self._stop.is_set() and self.going.get(unit) is asyncio.current_task():
            if self._ownership.may_open(unit):
                return True
            question = self._ownership.ask()
            self._ownership.answered(question, await self.member.generation())
            if not self._ownership.may_open(unit):
                await self._sleep(_AGAIN_S)
        return False

    async def _sleep(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), seconds)


async def share(bus: TaskClient, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, member: str) -> None:
    """See `sdfstream.bus.Bus.shared`.

    Raises
    ------
    BusError
        The group could not be joined, or a defect in `run`.
    """
    partitions = await bus.partitions_of(bus.config.prefix + CHECKPOINT.name)
    if work.units > len(partitions):
        raise BusError(f"{work.name} has {work.units} units, but {CHECKPOINT.name} only {len(partitions)} partitions")
    runs = Runs(bus, work, run, stop, member)
    try:
        await runs.member.join()
        await _until_stopped(runs, stop)
        await asyncio.gather(*runs.going.values())
    finally:
        await runs.close()


async def _until_stopped(runs: Runs, stop: Stop) -> None:
    """Return when `stop` is set; raise what `run` or the membership died of."""
    keeping = asyncio.create_task(runs.member.keep(), name="member")
    waiting = asyncio.create_task(_set(stop))
    try:
        ended, _ = await asyncio.wait({waiting, keeping, runs.failed}, return_when=asyncio.FIRST_COMPLETED)
        for one in ended:
            one.result()
    finally:
        waiting.cancel()
        keeping.cancel()
        await asyncio.gather(waiting, keeping, return_exceptions=True)


async def _set(stop: Stop) -> None:
    await stop.wait()
