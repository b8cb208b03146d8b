"""Assignment of units to processes by Kafka's group membership, over the partitions of the checkpoint topic.

A process that takes part in a stage's work is a member of the group ``<stage>.members``, which reads nothing: the
member assigned partition u of the checkpoint topic has unit u. With a `member` name membership is static: a process
that is back within the session's time-out finds its units as they were. Membership alone would not be exact (a process
that stood still counts itself an owner for a while); the fence of the task's transactions is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from aiokafka import ConsumerRebalanceListener
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import make_consumer
from sdfstream.bus.kafka.groups_io import stop as stop_client
from sdfstream.bus.task import Stop, Task, Work
from sdfstream.errors import BusError, FencedError, SdfError
from sdfstream.records.topics import CHECKPOINT

log = logging.getLogger("sdfstream.bus")

SESSION_MS: Final = 10_000
"""Without a heartbeat for this long a member loses its units to others. A stage that catches up on a busy machine may
send heartbeats late: with 6 s members counted as dead, and took units from each other in turn."""
HEARTBEAT_MS: Final = 2_000
_AGAIN_S: Final = 0.5
_LONGEST_AGAIN_S: Final = 10.0
_GONE_S: Final = 2 * HEARTBEAT_MS / 1000
"""Pause after a fence: by then a member that counted as dead has learned it from the group."""


class TaskClient(KafkaClient, Protocol):
    """A client that opens tasks."""

    async def task(self, work: Work, unit: int = 0) -> Task:
        """See `sdfstream.bus.Bus.task`."""


@dataclass(slots=True)
class Runs:
    """The units of this process, and the asyncio task that runs each."""

    bus: TaskClient
    work: Work
    run: Callable[[Task], Awaitable[None]]
    stop: Stop
    going: dict[int, asyncio.Task[None]] = field(default_factory=dict)
    failed: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    async def assign(self, units: set[int]) -> None:
        """Run exactly `units`: cancel the runs of others, start those of new ones."""
        gone = [self.going.pop(unit) for unit in self.going.keys() - units]
        for task in gone:
            task.cancel()
        await asyncio.gather(*gone, return_exceptions=True)
        for unit in units - self.going.keys():
            task = asyncio.create_task(self._unit(unit), name=f"{self.work.name}/{unit}")
            task.add_done_callback(partial(self._ended))
            self.going[unit] = task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)

    async def _unit(self, unit: int) -> None:
        """Run one unit until `stop`; after an `SdfError` it begins again from its last commit."""
        pause_s = _AGAIN_S
        while not self.stop.is_set():
            began_s = asyncio.get_running_loop().time()
            try:
                task = await self.bus.task(self.work, unit)
                try:
                    await self.run(task)
                finally:
                    await task.close()
            except SdfError as error:
                fenced = isinstance(error, FencedError)
                if asyncio.get_running_loop().time() - began_s > 30:
                    pause_s = _AGAIN_S
                self.bus.counters.add("task-restarted", f"{self.work.name}/{unit}")
                log.warning("%s/%d stopped (%s); again in %.1f s", self.work.name, unit, error, pause_s)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.stop.wait(), max(pause_s, _GONE_S if fenced else 0.0))
                pause_s = min(2 * pause_s, _LONGEST_AGAIN_S)


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands the group's assignments on to `Runs`."""

    def __init__(self, consumer: Any, runs: Runs) -> None:
        self._consumer = consumer
        self._runs = runs

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Nothing: most partitions usually come back, and the new owner of the others fences them."""

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        """Run the units numbered like the partitions `assigned`; nothing is read from those."""
        self._consumer.pause(*assigned)
        units = {p.partition for p in assigned if p.partition < self._runs.work.units}
        log.info("%s: units %s of %d", self._runs.work.name, sorted(units), self._runs.work.units)
        await self._runs.assign(units)


async def share(bus: TaskClient, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, member: str) -> None:
    """See `sdfstream.bus.Bus.shared`.

    Raises
    ------
    BusError
        The group could not be joined, or a defect in `run`.
    """
    topic = bus.config.prefix + CHECKPOINT.name
    partitions = await bus.partitions_of(topic)
    if work.units > len(partitions):
        raise BusError(f"{work.name} has {work.units} units, but {topic} only {len(partitions)} partitions")
    consumer = make_consumer(
        bus.config,
        f"{work.name}.members",
        group_instance_id=f"{work.name}.{member}" if member else None,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(RoundRobinPartitionAssignor,),
    )
    runs = Runs(bus, work, run, stop)
    consumer.subscribe([topic], listener=_Assignments(consumer, runs))
    try:
        with mapped(f"joining the members of {work.name}"):
            await consumer.start()
        waiting = asyncio.create_task(_set(stop))
        try:
            await asyncio.wait({waiting, runs.failed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if runs.failed.done():
            runs.failed.result()
        await asyncio.gather(*runs.going.values())
    finally:
        await runs.assign(set())
        with suppress(KafkaError):
            await stop_client(consumer)


async def _set(stop: Stop) -> None:
    await stop.wait()
