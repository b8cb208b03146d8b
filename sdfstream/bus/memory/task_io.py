"""Units of work on the in-process bus: every topic is one partition, and a checkpoint lives as long as the bus.

So a stage that fails goes on from its last commit; a process that ends loses bus and units alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sdfstream.bus import codec
from sdfstream.bus.memory.reader_io import Group, Logs, MemorySubscription
from sdfstream.bus.task import Work
from sdfstream.errors import FencedError
from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Partition, Positions


class TaskLogs(Logs, Protocol):
    """What a task needs of the bus."""

    groups: dict[str, Group]

    def now_ns(self) -> int:
        """Bus time, ns since the Unix epoch."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """See `sdfstream.bus.Bus.publish`."""


@dataclass(slots=True)
class Unit:
    """A unit's last commit, and the task that owns it."""

    saved: Checkpoint = field(default_factory=Checkpoint)
    numbers: list[list[str | int]] = field(default_factory=list)
    """The memory of repeats (`SequenceWatch.dump`) at the mark."""
    owner: MemoryTask | None = None


class MemoryTask:
    """A unit that this process owns (`sdfstream.bus.task.Task`); made by `MemoryBus.task`."""

    def __init__(self, bus: TaskLogs, work: Work, unit: int, state: Unit) -> None:
        self.work = work
        self.unit = unit
        self.saved = state.saved
        self._bus = bus
        self._state = state
        self._group = f"task {work.name}/{unit}of{work.units}"
        self._reader = self._join()

    def _join(self) -> MemorySubscription:
        topics = (*self.work.topics, *self.work.for_all) if self.unit == 0 else self.work.for_all
        for topic in topics:
            codec.topic_of(topic)
        begin = self.saved.mark or self.saved.positions
        start = {t: begin.get((t, 0), self._first(t)) for t in topics}
        group = Group(committed=start)
        reader = MemorySubscription(
            self._bus, self._group, group, topics, drop_repeats=True, slice_ns=self.work.slice_ns
        )
        group.members.append(reader)
        self._bus.groups[self._group] = group
        group.assign()
        reader.watch.load(self._state.numbers)  # joining a group clears the memory of repeats
        self._state.owner = self
        if not (self.saved.positions or self.saved.notes):
            self.saved = self._state.saved = Checkpoint({(topic, 0): seq for topic, seq in start.items()})
        return reader

    def _first(self, topic: str) -> int:
        log = self._bus.log(topic)
        return log.first_seq if self.work.from_start or codec.topic_of(topic).compacted else log.next_seq

    async def read(
        self, max_messages: int = 1000, timeout_s: float = 0.1, *, upto: Positions | None = None
    ) -> list[Message]:
        """See `sdfstream.bus.task.Task`."""
        self._check()
        if upto is None:
            return await self._reader.read(max_messages, timeout_s)
        return await self._reader.read(max_messages, 0.0, upto={topic: end for (topic, _), end in upto.items()})

    def positions(self) -> dict[Partition, int]:
        """See `sdfstream.bus.task.Task`."""
        return {(topic, 0): position.seq for topic, position in self._reader.positions.items()}

    def seek(self, positions: Positions) -> None:
        """See `sdfstream.bus.task.Task`."""
        for (topic, _), seq in positions.items():
            self._reader.seek(topic, seq)

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
        mark: bool = False,
    ) -> None:
        """See `sdfstream.bus.task.Task`."""
        self._check()
        # a caller that is cancelled here has committed
        await asyncio.shield(self._commit(outputs, positions, notes or {}, mark))

    async def _commit(
        self, outputs: Sequence[Output], positions: Positions | None, notes: Mapping[str, bytes | None], mark: bool
    ) -> None:
        for output in outputs:
            codec.check(output)
        where = self.positions() if positions is None else {**self._state.saved.positions, **positions}
        numbers = self._reader.watch.dump() if mark else []
        await self._bus.publish(outputs)
        self._check()
        before = {} if mark else self._state.saved.notes
        after = {name: note for name, note in {**before, **notes}.items() if note is not None}
        self._state.saved = Checkpoint(where, after, where if mark else self._state.saved.mark)
        if mark:
            self._state.numbers = numbers

    def known_until_ns(self) -> int | None:
        """See `sdfstream.bus.task.Task`."""
        return self._reader.known_until_ns()

    def lag(self) -> int:
        """See `sdfstream.bus.task.Task`."""
        return self._reader.lag()

    async def close(self) -> None:
        """See `sdfstream.bus.task.Task`."""
        if self._state.owner is self:
            self._state.owner = None
        await self._reader.close()

    def _check(self) -> None:
        self._bus.check_open()
        if self._state.owner is not self:
            raise FencedError(f"{self._group} is somebody else's now")
