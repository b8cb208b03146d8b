"""A task's consumer as partitions merged in bus order: what waits, how far everything is known, what is behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.groups_io import STOP_S
from sdfstream.bus.kafka.merge import Held, Merge
from sdfstream.bus.kafka.times import entered_at_ns, header_at_ns
from sdfstream.records.position import Part, Positions
from sdfstream.records.units import NS_PER_MS

LOG_APPEND_TIME: Final = 1
_LANE_BYTES: Final = 16 << 20
"""Beyond this a partition is not fetched until others have caught up."""
_SETTLE_NS: Final = 20 * NS_PER_MS
"""A message may be so long on its way from its producer's clock to a consumer of a quick broker."""


class Lanes:
    """See the module; `fetch` first, then `take`."""

    def __init__(self, consumer: Any, config: KafkaConfig, lost: Callable[[str, int], None]) -> None:
        self.next: dict[Part, int] = {}
        """Partition → where the next taken message stands, or would."""
        self.floors_ns: dict[Part, int] = {}
        """Time of the last message given out, per partition."""
        self._consumer = consumer
        self._origin_ns: int | None = None
        """Bus time when the monotonic clock read 0: a wall clock may be set, and would take bus time along."""
        self._prefix = config.prefix
        self._lost = lost
        self._merge: Merge[Any] = Merge()
        self._theirs: dict[Part, Any] = {}
        self._ours: dict[Any, Part] = {}
        self._fetched_ns: dict[Part, int] = {}
        """Time of the last message fetched, per partition."""
        self._reached: dict[Part, int] = {}
        """The consumer's position: behind what was fetched."""
        self._paused: set[Part] = set()

    async def open(self, start: Positions, floors_ns: Mapping[Part, int]) -> None:
        """Read the partitions of `start`, which the consumer is assigned, from there on."""
        self._theirs = {part: TopicPartition(self._prefix + part[0], part[1]) for part in start}
        self._ours = {theirs: part for part, theirs in self._theirs.items()}
        self._merge.open(start)
        self.floors_ns = {part: floors_ns.get(part, 0) for part in start}
        self.seek(start)

    def seek(self, positions: Positions) -> None:
        """Go on there; what was fetched of those partitions is dropped."""
        for part, offset in positions.items():
            self._consumer.seek(self._theirs[part], offset)
            self._merge.clear(part)
            self.next[part] = self._reached[part] = offset
            self._fetched_ns[part] = self.floors_ns[part]

    async def fetch(self, timeout_s: float) -> None:
        """Fetch what there is; when there is nothing, wait for it."""
        self._limit()
        try:
            found = await self._consumer.getmany(timeout_ms=max(0, round(timeout_s * 1000)))
        except OffsetOutOfRangeError as error:
            await self._begin_again(error.args[0])
            found = {}
        except NoOffsetForPartitionError as error:
            await self._begin_again({error.args[0]: 0})
            found = {}
        for theirs, records in found.items():
            part = self._ours.get(theirs)
            if part is not None:
                self._merge.put(part, [self._held(part, record) for record in records])
        for part, theirs in self._theirs.items():
            self._reached[part] = await self._consumer.position(theirs)

    def take(self, max_messages: int, max_bytes: int, *, regardless: bool = False) -> list[tuple[Part, Held[Any]]]:
        """The next messages in bus order; `regardless` of partitions that are behind."""
        behind = set() if regardless else {part for part in self.next if self._behind(part)}
        return self._gone(self._merge.take(behind, max_messages, max_bytes))

    def take_until(
        self, upto: Positions, max_messages: int = 1000, max_bytes: int = 16 << 20
    ) -> list[tuple[Part, Held[Any]]]:
        """What waits before `upto`; partitions that have nothing more before it have reached it."""
        taken = self._gone(self._merge.take_until(upto, max_messages, max_bytes))
        for part, end in upto.items():
            head = self._merge.head(part)
            if (self._reached[part] if head is None else head.offset) >= end:
                self.next[part] = max(self.next[part], end)
        return taken

    def held_back(self) -> bool:
        """Whether something waits for a partition that is behind."""
        return any(self._merge.waiting(part) for part in self.next)

    def known_until_ns(self) -> int | None:
        """When all partitions were last heard to have nothing more, in bus time."""
        if self._origin_ns is None:
            return None
        polled_ms = []
        for part, theirs in self._theirs.items():
            if self._merge.waiting(part) or self._behind(part):
                return None
            polled_ms.append(self._consumer.last_poll_timestamp(theirs))
        # a wall clock that was set back in between makes a negative age
        age_ns = max(0, time.time_ns() - min(polled_ms) * NS_PER_MS) if polled_ms else 0
        return self._origin_ns + time.monotonic_ns() - age_ns - _SETTLE_NS

    def now_ns(self) -> int:
        """Bus time, by the brokers' clock and the time since; none of it from this machine's wall clock."""
        return time.monotonic_ns() + (self._origin_ns or 0)

    def told_ns(self, at_ns: int) -> None:
        """The brokers' clock reads `at_ns` now."""
        self._origin_ns = at_ns - time.monotonic_ns()

    def lag(self) -> int:
        """Records behind what was given out, as far as the brokers' last answers told."""
        lag = 0
        for part, theirs in self._theirs.items():
            with suppress(IllegalStateError):
                lag += max(0, (self._consumer.highwater(theirs) or 0) - self.next[part])
        return lag

    async def stands_still(self) -> bool:
        """Whether the brokers have more than they gave; False when they do not answer."""
        with suppress(KafkaError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                ends = await self._consumer.end_offsets(list(self._ours))
            return any(end > self._reached[self._ours[theirs]] for theirs, end in ends.items())
        return False

    def _behind(self, part: Part) -> bool:
        """Whether the brokers have more of `part`, as they last said, or have not said anything yet."""
        stable = self._consumer.last_stable_offset(self._theirs[part])
        return stable is None or stable > self._reached[part]

    def _gone(self, taken: list[tuple[Part, Held[Any]]]) -> list[tuple[Part, Held[Any]]]:
        for part, held in taken:
            self.next[part] = held.offset + 1
            self.floors_ns[part] = held.at_ns
        for part, reached in self._reached.items():
            if not self._merge.waiting(part):  # behind records that tell of transactions only
                self.next[part] = max(self.next[part], reached)
        return taken

    def _held(self, part: Part, record: Any) -> Held[Any]:
        by_broker = record.timestamp_type == LOG_APPEND_TIME
        header_ns = header_at_ns(record.headers)
        at_ns, _ = entered_at_ns(header_ns, record.timestamp, by_broker, self._fetched_ns[part])
        self._fetched_ns[part] = at_ns
        return Held(at_ns, record.offset, len(record.value or b"") + 512, record)

    def _limit(self) -> None:
        """Do not fetch what has much waiting."""
        for part, size in self._merge.bytes.items():
            if size > _LANE_BYTES and part not in self._paused:
                self._paused.add(part)
                self._consumer.pause(self._theirs[part])
            elif part in self._paused and size < _LANE_BYTES // 2:
                self._paused.discard(part)
                self._consumer.resume(self._theirs[part])

    async def _begin_again(self, where: Mapping[Any, int]) -> None:
        """Positions that are no more: go on with the oldest record, and count what is gone."""
        begins = await self._consumer.beginning_offsets(list(where))
        for theirs, offset in where.items():
            if theirs not in self._ours:
                continue
            self._lost(self._ours[theirs][0], max(0, begins[theirs] - offset))
            self.seek({self._ours[theirs]: begins[theirs]})
