"""The bus of one process: bounded, ordered, with consumer groups; record batches pass by reference.

Bound
-----
Per topic, ``max_topic_bytes`` of messages that the slowest reader has not read, then `publish` to that topic waits;
behind them at most ``replay_bytes`` of messages already read. With T topics in use and M the largest message::

    held ≤ T · (max_topic_bytes + replay_bytes + 2 M)

The bound is per topic and not for the whole bus on purpose: a stage that reads A and writes B waits only for the
readers of B, so waiting cannot close into a circle as long as the topics' flow has none. A group without members
holds nothing back: its commits stay, and what the ring has dropped by its return is counted as ``lost``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.conform import size_bytes
from sdfstream.bus.memory.reader_io import Group, MemorySubscription
from sdfstream.bus.memory.task_io import MemoryTask, Unit
from sdfstream.bus.memory.topic_log import TopicLog
from sdfstream.bus.sequences import Numbers
from sdfstream.bus.task import Stop, Work
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Body, Event, Message, Output
from sdfstream.records.slices import is_urgent
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class MemoryBusConfig:
    """Sizes of the in-process bus; see the module's formula."""

    max_topic_bytes: int = 64 << 20
    replay_bytes: int = 16 << 20
    max_message_bytes: int = 8 << 20
    """The same limit as on Kafka, so that what runs in one process runs on many."""


class MemoryBus:
    """The in-process bus.

    Parameters
    ----------
    clock : callable
        The bus's clock, ns since the Unix epoch. ``bus_at_ns`` never goes back, whatever the clock does.
    boot_id : str
        Names this run; written to messages whose producer did not bring its own.
    """

    def __init__(self, clock: Callable[[], int], *, boot_id: str = "", config: MemoryBusConfig | None = None) -> None:
        self.counters = Counters("bus")
        self.config = config or MemoryBusConfig()
        self._clock = clock
        self._boot_id = boot_id
        self._numbers = Numbers()
        self._logs: dict[str, TopicLog] = {}
        self._order: dict[str, asyncio.Lock] = {}
        self.groups: dict[str, Group] = {}
        """Consumer groups and tasks, which are groups of one."""
        self._units: dict[tuple[str, int, int], Unit] = {}
        self._at_ns = -(1 << 63)
        self._space = asyncio.Event()
        self._closed = False

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Put `outputs` on the bus; waits while a topic's slowest reader is too far behind."""
        for output in outputs:
            body, refused = codec.check(output)
            if refused:
                self.counters.add("refused", "null-rows", refused)
            await self._append(output, body)

    async def publish_bytes(self, topic: str, key: str, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        """Decode a message in wire form and put it on the bus; what cannot be read goes to ``<topic>.dlq``."""
        given = list(headers)
        try:
            message = codec.decode(topic, given, value, key)
            await self._append(Output(topic, key, message.body, message.boot_id, message.batch_seq), message.body)
            if not message.refused_rows:
                return
            why = FormatError("null-rows", f"{message.refused_rows} rows have a null where none may be")
            self.counters.add("refused", why.reason, message.refused_rows)
        except FormatError as error:
            why = error
            self.counters.add("refused", error.reason)
        with suppress(FormatError):  # a message of an unknown topic has no dead-letter topic; it is counted
            codec.topic_of(topic)
            dead = dead_letters.dead_letter(topic, key, given, value, why, self._clock())
            await self._append(dead, dead.body)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, from_start: bool = False, slice_ns: int = 0
    ) -> MemorySubscription:
        """Join `group`; see `sdfstream.bus.Bus.subscribe`."""
        self.check_open()
        state = self.groups.setdefault(group, Group())
        for topic in topics:
            codec.topic_of(topic)
            log = self.log(topic)
            state.committed.setdefault(topic, log.first_seq if from_start else log.next_seq)
        member = MemorySubscription(self, group, state, tuple(topics), slice_ns=slice_ns)
        state.members.append(member)
        state.assign()
        return member

    async def partitions(self, topic: str) -> int:
        """Always one."""
        codec.topic_of(topic)
        return 1

    async def task(self, work: Work, unit: int = 0) -> MemoryTask:
        """Own a unit of `work`, in place of its former owner; see `sdfstream.bus.Bus.task`."""
        self.check_open()
        state = self._units.setdefault((work.name, unit, work.units), Unit())
        if state.owner is not None:
            await state.owner.close()
        return MemoryTask(self, work, unit, state)

    async def shared(
        self, work: Work, run: Callable[[MemoryTask], Awaitable[None]], stop: Stop, *, member: str = ""
    ) -> None:
        """Run `run` for every unit of `work`; see `sdfstream.bus.Bus.shared`."""
        async with asyncio.TaskGroup() as group:
            for unit in range(work.units):
                group.create_task(self._run_unit(work, unit, run))

    async def _run_unit(self, work: Work, unit: int, run: Callable[[MemoryTask], Awaitable[None]]) -> None:
        task = await self.task(work, unit)
        try:
            await run(task)
        finally:
            await task.close()

    def now_ns(self) -> int:
        """Bus time: the bus's clock, which never goes back here."""
        self._at_ns = max(self._at_ns, self._clock())
        return self._at_ns

    async def close(self) -> None:
        """Stop: waiting publishers and readers get `BusError`."""
        self._closed = True
        self._space.set()
        for group in self.groups.values():
            for member in group.members:
                member.wake()

    def held_bytes(self) -> int:
        """Bytes of messages that the bus holds; bounded by the module's formula."""
        return sum(log.held_bytes() for log in self._logs.values())

    def freed(self) -> None:
        """Let waiting publishers look for room again: a reader went on or left."""
        self._space.set()
        self._space.clear()

    async def _append(self, output: Output, body: Body) -> None:
        size = self._size_of(output, body)
        log = self.log(output.topic)
        async with self._order.setdefault(output.topic, asyncio.Lock()):
            await self._wait_for_space(log, size)
            at_ns = self.now_ns()
            boot_id, number = output.boot_id, output.batch_seq
            if not boot_id:
                boot_id, number = self._boot_id, self._numbers.take(output.topic, output.key)
            message = Message(output.topic, output.key, body, at_ns, log.next_seq, boot_id, number)
            log.append(message, size)
        self.counters.add("published", output.topic)
        urgent = is_urgent(output.topic, body)
        for group in self.groups.values():
            for member in group.members:
                if output.topic in member.positions:
                    member.wake(urgent=urgent)

    async def _wait_for_space(self, log: TopicLog, size: int) -> None:
        waited = False
        while not self._closed and 0 < log.backlog_bytes() > self.config.max_topic_bytes - size:
            self.counters.add("publish-waits", n=not waited)
            waited = True
            await self._space.wait()
        self.check_open()

    def _size_of(self, output: Output, body: Body) -> int:
        """Bytes of the body: its columns, or its JSON (which also finds an event that Kafka could not carry)."""
        size = len(codec.encode_body(output.topic, body)) if isinstance(body, Event) else size_bytes(output.topic, body)
        # a dead letter holds its original in base64
        limit = self.config.max_message_bytes * (2 if dead_letters.is_dead(output.topic) else 1)
        if size > limit:
            self.counters.add("refused", "oversize")
            raise FormatError("oversize", f"{size} bytes for {output.topic}, more than max_message_bytes {limit}")
        return size

    def log(self, topic: str) -> TopicLog:
        """The log of `topic`, made when it is first named."""
        return self._logs.setdefault(topic, TopicLog(self.config.replay_bytes))

    def check_open(self) -> None:
        """Raise `BusError` once the bus is closed."""
        if self._closed:
            raise BusError("the bus is closed")
