"""Membership in a group that assigns units to processes, by a client of its own that reads nothing.

The client runs in a thread with a loop of its own: a stage that catches up may keep the process's loop busy for longer
than a session lasts, and its unit would go to another, which has the same to catch up with. As with Kafka's own clients
heartbeats thus say that the process lives, and polls that it gets on: the process's loop asks for each poll, and where
it does not for `HANGS_MS`, the client leaves the group.

A client that is not polled (aiokafka 0.14, ``consumer/group_coordinator.py``) sends no more heartbeats after that time
and never joins again, and says nothing; and errors of its coordination, which it hands out by the poll, stop it until
then. A client that fails, or is in no generation for `LOST_S`, is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from aiokafka import ConsumerRebalanceListener
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from sdfstream.bus.kafka.assignment import Held, assign
from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import make_consumer
from sdfstream.bus.kafka.groups_io import stop as stop_client
from sdfstream.bus.kafka.thread_io import LoopThread
from sdfstream.errors import BusError

log = logging.getLogger("sdfstream.bus")

SESSION_MS: Final = 10_000
"""Without a heartbeat for this long (frozen, killed, cut off) a member loses its units to others."""
HEARTBEAT_MS: Final = 2_000
HANGS_MS: Final = 60_000
"""A process whose own loop does not come round for this long loses its units too."""
LOST_S: Final = 30.0
"""A client that is in no generation for this long is replaced; joining takes the session's time-out at most."""
_POLL_MS: Final = 500
_AGAIN_S: Final = 1.0

Assigned = Callable[[set[int], int], None]
"""Takes the units that the group assigned, and the generation."""


class Member:
    """A member of `group` with `units` units, over as many partitions of `topic`.

    Parameters
    ----------
    instance : str
        Name of a static member; empty: it is another one after every start.

    Notes
    -----
    Counter of the bus: ``member-renewed`` (group).
    """

    def __init__(self, bus: KafkaClient, group: str, topic: str, units: int, instance: str, assigned: Assigned) -> None:
        self._bus = bus
        self._group = group
        self._topic = topic
        self._instance = instance
        self._assigned = assigned
        self._assignor = _UnitAssignor(units)
        self._loop = asyncio.get_running_loop()
        self._thread = LoopThread(f"member {group}")
        # what follows is the thread's alone
        self._consumer: Any = None
        self._held_s = 0.0
        """When the client was last in a generation, or was made; clock of the thread's loop."""

    async def join(self) -> None:
        """Join the group; errors as `mapped`."""
        self._thread.start()
        await self._thread.run(self._join())

    async def keep(self) -> None:
        """Remain a member, until cancelled."""
        while True:
            await self._thread.run(self._poll())

    async def generation(self) -> int | None:
        """The generation in which the coordinator knows this member, asked now; None: in none, or no answer."""
        return await self._thread.run(self._asked())

    async def leave(self) -> None:
        """End the client; a static member is back within the session's time-out, or its units go to others."""
        if self._thread.alive:
            await self._thread.run(self._stop())
            await self._thread.end()

    # -- in the thread ----------------------------------------------------------------------------------------------

    async def _join(self) -> None:
        consumer = make_consumer(
            self._bus.config,
            self._group,
            group_instance_id=self._instance or None,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=HANGS_MS,
            partition_assignment_strategy=(self._assignor,),
        )
        consumer.subscribe([self._topic], listener=_Listener(consumer, self._take))
        self._consumer, self._held_s = consumer, asyncio.get_running_loop().time()
        try:
            with mapped(f"joining {self._group}"):
                await consumer.start()
        except BaseException:
            await self._stop()
            raise

    async def _poll(self) -> None:
        """Poll the client for `_POLL_MS`; one that fails is replaced."""
        loop = asyncio.get_running_loop()
        try:
            if self._consumer is None:
                await self._join()
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * _POLL_MS / 1000):  # it waits for ever for an assignment
                    await self._consumer.getmany(timeout_ms=_POLL_MS)
            if self._consumer._coordinator.generation > 0:
                self._held_s = loop.time()
            elif loop.time() - self._held_s > LOST_S:
                raise BusError(f"it is in no generation for {LOST_S:.0f} s")
        except Exception as error:  # also what the client lets through from its transport, such as RuntimeError
            log.warning("%s: the group's client is replaced: %s: %s", self._group, type(error).__name__, error)
            self._loop.call_soon_threadsafe(self._bus.counters.add, "member-renewed", self._group)
            await self._stop()
            await asyncio.sleep(_AGAIN_S)

    async def _asked(self) -> int | None:
        coordinator = self._consumer._coordinator if self._consumer is not None else None
        if coordinator is None or coordinator.coordinator_id is None or coordinator.generation <= 0:
            return None
        asked: int = coordinator.generation
        known = False
        with suppress(Exception):  # the client's poll tells of it
            async with asyncio.timeout(HEARTBEAT_MS / 1000):
                known = await coordinator._do_heartbeat()  # refused: the client joins again
        return asked if known and coordinator.generation == asked else None

    async def _stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(Exception):  # its transport may be what has failed
                await stop_client(consumer)

    def _take(self, units: set[int], generation: int) -> None:
        self._assignor.held = Held(generation, frozenset(units))
        with suppress(RuntimeError):  # the process's loop has ended
            self._loop.call_soon_threadsafe(self._assigned, units, generation)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands the group's assignments on; no heartbeat is sent until it returns."""

    def __init__(self, consumer: Any, assigned: Assigned) -> None:
        self._consumer = consumer
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Nothing: most partitions usually come back, and the new owner of the others fences them."""

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        """Hand on the numbers of the partitions `assigned`; nothing is read from those."""
        self._consumer.pause(*assigned)
        self._assigned({p.partition for p in assigned}, self._consumer._coordinator.generation)


class _UnitAssignor:
    """`assignment.assign` as the client's strategy."""

    name = "roundrobin"
    """As earlier versions called it, whose members may be in the group during an upgrade."""

    def __init__(self, units: int) -> None:
        self.held = Held()
        self._units = units

    def metadata(self, topics: Any) -> Any:
        """What this member sends with its request to join."""
        return ConsumerProtocolMemberMetadata(0, list(topics), self.held.pack())

    def assign(self, cluster: Any, members: Any) -> dict[str, Any]:
        """Partitions of every member, asked of the group's leader."""
        (topic,) = {topic for said in members.values() for topic in said.subscription}
        found = assign(self._units, {name: Held.unpack(said.user_data) for name, said in members.items()})
        return {
            name: ConsumerProtocolMemberAssignment(0, [(topic, sorted(units))], b"") for name, units in found.items()
        }

    def on_assignment(self, assignment: Any) -> None:
        """Nothing: the listener comes with the generation."""
