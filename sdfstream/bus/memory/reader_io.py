"""A consumer group of the in-process bus, and its members."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from sdfstream.bus.memory.topic_log import Position, TopicLog
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.errors import BusError
from sdfstream.records.message import Message
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters


class Logs(Protocol):
    """What a reader needs of the bus."""

    counters: Counters

    def log(self, topic: str) -> TopicLog:
        """The log of `topic`."""

    def freed(self) -> None:
        """Let waiting publishers look for room again."""

    def check_open(self) -> None:
        """Raise `BusError` once the bus is closed."""

    def now_ns(self) -> int:
        """Bus time, ns since the Unix epoch."""


@dataclass(slots=True)
class Group:
    """A consumer group: its committed position per topic, and its members in order of joining."""

    committed: dict[str, int] = field(default_factory=dict)
    members: list[MemorySubscription] = field(default_factory=list)

    def assign(self) -> None:
        """Give every topic to one member: its owner while that stays, else the one with the fewest topics."""
        for topic in sorted({t for m in self.members for t in m.topics}):
            able = [m for m in self.members if topic in m.topics]
            if not any(topic in m.positions for m in able):
                min(able, key=lambda m: len(m.positions)).take_over(topic)


class MemorySubscription:
    """One member of a consumer group; made by `MemoryBus.subscribe`."""

    def __init__(
        self,
        bus: Logs,
        group: str,
        state: Group,
        topics: tuple[str, ...],
        *,
        drop_repeats: bool = False,
        slice_ns: int = 0,
    ) -> None:
        self.topics = topics
        self.drop_repeats = drop_repeats
        self._slice_ns = slice_ns
        self.positions: dict[str, Position] = {}
        """Position in the topics that this member owns; other members of the group own the rest."""
        self._came, self._hurry = asyncio.Event(), asyncio.Event()
        self._bus = bus
        self._group = group
        self._state = state
        self.watch = SequenceWatch(bus.counters, group)
        self._closed = False

    def take_over(self, topic: str) -> None:
        """Own `topic`, from the group's committed position on."""
        log = self._bus.log(topic)
        committed = self._state.committed[topic]
        self._bus.counters.add("lost", f"{self._group}:{topic}", max(0, log.first_seq - committed))
        self.positions[topic] = log.attach(committed)
        self.watch.forget()
        self.wake()

    def wake(self, *, urgent: bool = True) -> None:
        """There may be something to read, or to learn; `urgent`: it does not wait for the end of its slice."""
        self._came.set()
        if urgent:
            self._hurry.set()

    async def read(
        self, max_messages: int = 1000, timeout_s: float = 0.1, *, upto: Mapping[str, int] | None = None
    ) -> list[Message]:
        """Messages in order of (bus_at_ns, topic, bus_seq); empty when none came within `timeout_s`.

        With `upto` only messages of its topics, before its numbers.
        """
        self._check_open()
        if upto is not None:
            return self._take(max_messages, upto)
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            found = self._take(max_messages, before_ns=await self._end_of_slice())
            left_s = deadline_s - loop.time()
            if found or left_s <= 0:
                return found
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    while not self.lag():
                        self._came.clear()
                        await self._came.wait()
                        self._check_open()

    async def _end_of_slice(self) -> float:
        """Wait for the end of the present slice of bus time, if there are rows of this slice alone and nothing urgent.

        Returns the bus time up to which messages may be given out.
        """
        if not self._slice_ns or self._hurry.is_set():
            return math.inf
        now_ns = self._bus.now_ns()
        began_ns = now_ns - now_ns % self._slice_ns
        heads = self._heads_ns()
        if not heads or min(heads) < began_ns:
            return began_ns
        with suppress(TimeoutError):
            async with asyncio.timeout((began_ns + self._slice_ns - now_ns) / NS_PER_S):
                await self._hurry.wait()
        self._check_open()
        return math.inf if self._hurry.is_set() else began_ns + self._slice_ns

    async def commit(self) -> None:
        """Commit the positions behind every message read."""
        self._check_open()
        self._state.committed.update({topic: position.seq for topic, position in self.positions.items()})

    def known_until_ns(self) -> int:
        """Bus time up to which every message of the owned topics was given out."""
        heads = self._heads_ns()
        return min(heads) - 1 if heads else self._bus.now_ns()

    def _heads_ns(self) -> list[int]:
        """When the next message of each topic that has one entered the bus."""
        return [m.bus_at_ns for topic, p in self.positions.items() if (m := self._bus.log(topic).peek(p)) is not None]

    def lag(self) -> int:
        """Messages of the owned topics that are not read yet."""
        return sum(self._bus.log(topic).next_seq - p.seq for topic, p in self.positions.items())

    async def close(self) -> None:
        """Leave the group; its other members take over from the last commit."""
        if self._closed:
            return
        self._closed = True
        self.wake()
        self._state.members = [m for m in self._state.members if m is not self]
        for topic, position in self.positions.items():
            self._bus.log(topic).detach(position)
        self.positions.clear()
        self._state.assign()
        self._bus.freed()

    def seek(self, topic: str, seq: int) -> None:
        """Read message number `seq` of `topic` next, or the first one that the log still has."""
        log = self._bus.log(topic)
        log.detach(self.positions[topic])
        self.positions[topic] = log.attach(seq)
        self.wake()

    def _take(
        self, max_messages: int, upto: Mapping[str, int] | None = None, before_ns: float = math.inf
    ) -> list[Message]:
        self._came.clear()
        self._hurry.clear()
        taken: list[Message] = []
        ends = {topic: math.inf for topic in self.positions} if upto is None else upto
        logs = {topic: self._bus.log(topic) for topic in self.positions if topic in ends}
        heads: list[tuple[int, str, Message]] = []  # a heap of each topic's next message

        def see_next(topic: str) -> None:
            message = logs[topic].peek(self.positions[topic])
            if message is not None and message.bus_at_ns < before_ns and message.bus_seq < ends[topic]:
                heapq.heappush(heads, (message.bus_at_ns, topic, message))

        for topic in logs:
            see_next(topic)
        while heads and len(taken) < max_messages:
            _, topic, message = heapq.heappop(heads)
            logs[topic].advance(self.positions[topic])
            see_next(topic)
            fresh = self.watch.see(topic, message.key, message.boot_id, message.batch_seq)
            if fresh or not self.drop_repeats:
                taken.append(message)
        if taken:
            for topic, count in Counter(m.topic for m in taken).items():
                self._bus.counters.add("delivered", topic, count)
            for log in logs.values():
                log.trim()
            self._bus.freed()
        return taken

    def _check_open(self) -> None:
        if self._closed:
            raise BusError("the subscription is closed")
        self._bus.check_open()
