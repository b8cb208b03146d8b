"""A unit of work on Kafka: one manually assigned consumer, one transactional producer, notes on the checkpoint topic.

Opening a task fences its former owner (`commit_io`). Positions are among the notes; about once a second they are also
committed to the stage's consumer group, for the tools that show lag.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka import fitting, notes
from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.commit_io import CommitWriter, read_notes, task_name
from sdfstream.bus.kafka.config import CHECKPOINT_PARTITIONS
from sdfstream.bus.kafka.decoded import ReadRecord
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import STOP_S, make_consumer, stop
from sdfstream.bus.kafka.partitions_io import MergedPartitions
from sdfstream.bus.kafka.producer_io import transactional
from sdfstream.bus.sequences import SequenceWatch
from sdfstream.bus.task import Work
from sdfstream.errors import BusError, FormatError
from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message, Output
from sdfstream.records.position import PARTITION_BITS, Partition, Positions
from sdfstream.records.slices import is_urgent
from sdfstream.records.topics import CHECKPOINT
from sdfstream.records.units import NS_PER_S

READ_BYTES: Final = 16 << 20
"""About the most that one read gives, in bytes as fetched."""
HOLD_S: Final = 3.0
"""The longest that a partition of which the brokers may have more holds the others back."""
NEVER_S: Final = float("inf")
_LATE_S: Final = 0.005
"""From entering the bus until a reader sees it, as a rule."""
_GROUP_COMMIT_S: Final = 1.0
_MARK_S: Final = 10.0


class _RefusedRecord(NamedTuple):
    """A message that could not be read, met at `at_ns`."""

    partition: Partition
    offset: int
    read: ReadRecord
    why: FormatError
    at_ns: int


class KafkaTask:
    """A unit that this process owns (`sdfstream.bus.task.Task`); made by `open`.

    Notes
    -----
    Counters of the bus, beside those of `KafkaSubscription`: ``unaligned`` (a partition held others back too long),
    ``committed``, ``commit-failed`` and ``marked`` (by task).
    """

    def __init__(self, bus: KafkaClient, work: Work, unit: int, producer: Any, consumer: Any) -> None:
        self.work = work
        self.unit = unit
        self.saved = Checkpoint()
        self.name = task_name(work, unit)
        self._bus = bus
        self._producer = producer
        self._consumer = consumer
        self._watch = SequenceWatch(bus.counters, work.name)
        self._partitions = MergedPartitions(consumer, bus.config, lambda topic, n: self._count_lost(topic, n))
        self._dead_letters: list[_RefusedRecord] = []
        """Messages that could not be read; their dead letters are sent once a commit passes them."""
        self._committed: dict[Partition, int] = {}
        self._notes: dict[str, bytes] = {}
        self.over: str = ""
        """Why the task ended; empty: it goes on."""
        self.closed = False
        self._writer: CommitWriter
        self._own_mark: notes.Mark | None = None
        """A mark set by the task, to be written once everything before it is committed."""
        self._group_committed_s = self._progress_s = asyncio.get_running_loop().time()
        self._marked_s = NEVER_S
        self._held_since_s: float | None = None
        self._topics = (*work.topics, *work.for_all)
        bus.decoded.begin(work.name, self._topics)

    @classmethod
    async def open(cls, bus: KafkaClient, work: Work, unit: int) -> KafkaTask:
        """Fence the former owner, read what its last commit left, and begin there.

        Raises
        ------
        BusError, UnavailableError
            The brokers refused.
        FormatError
            The notes of the last commit cannot be read.
        """
        name = task_name(work, unit)
        with mapped(f"taking {name}"):
            # first the fence: after it, the former owner's notes change no more
            producer = await transactional(bus.config, bus.config.prefix + name)
        consumer = make_consumer(bus.config, work.name, reset="none")
        task = cls(bus, work, unit, producer, consumer)
        try:
            with mapped(f"opening {name}"):
                await consumer.start()
                await task._begin()
        except BaseException:
            await task.close()
            raise
        return task

    async def _begin(self) -> None:
        numbers = await self._bus.partitions_of(self._bus.config.prefix + CHECKPOINT.name)
        number = numbers[(sum(self.work.name.encode()) + self.unit) % min(len(numbers), CHECKPOINT_PARTITIONS)]
        checkpoint = self._topic_partition((CHECKPOINT.name, number))
        reader = await read_notes(self._consumer, checkpoint, self.name)
        self.saved, mark = reader.checkpoint(), reader.mark()
        self._writer = CommitWriter(
            self._bus, self.name, self._producer, checkpoint, reader.number + 1, reader.begin_offset
        )
        self._notes, self._committed = dict(self.saved.notes), dict(self.saved.positions)
        partitions = await self._find_partitions()
        self._consumer.assign([*map(self._topic_partition, partitions), checkpoint])
        self._consumer.pause(checkpoint)  # assigned only so that its position can be committed
        self._consumer.seek(checkpoint, 0)
        fresh = not (self.saved.positions or self.saved.notes)
        start = await self._first_offsets(partitions, fresh)
        # moves no position of an old unit, and yields the brokers' time
        await self.commit(positions=start if fresh else self._committed)
        floors = dict.fromkeys(partitions, 0 if self.work.from_start else self._partitions.now_ns()) if fresh else {}
        if mark is not None:
            start |= {p: n for p, n in mark.positions.items() if p in start}
            floors |= mark.floors_ns
            self._watch.load(mark.numbers)
        elif not fresh:
            start |= {p: n for p, n in self.saved.positions.items() if p in start}
        await self._partitions.open(start, floors)
        if mark is None or not mark.own:  # a user that marks goes on marking: a mark of the task would void its own
            self._marked_s = asyncio.get_running_loop().time()
        if fresh:
            self.saved = Checkpoint(dict(start))
        elif mark is not None and not mark.own:
            await self._reread_since_mark()

    async def _find_partitions(self) -> list[Partition]:
        """The unit's partitions now: a topic may have got more since the last commit."""
        found: list[Partition] = []
        for topic in self._topics:
            every = await self._bus.partitions_of(self._bus.config.prefix + topic)
            found += [(topic, n) for n in every if topic in self.work.for_all or n % self.work.units == self.unit]
        return found

    async def _first_offsets(self, partitions: Sequence[Partition], fresh: bool) -> dict[Partition, int]:
        """Offsets at which partitions without a position begin.

        A new unit reads what enters from now on, and the whole of a compacted topic, which is the latest state. A
        partition that is new to an old unit is read from its beginning.
        """
        begins = await self._consumer.beginning_offsets([self._topic_partition(p) for p in partitions])
        ends = await self._consumer.end_offsets([self._topic_partition(p) for p in partitions])
        whole = self.work.from_start or not fresh
        return {
            p: begins[t] if whole or codec.topic_of(p[0]).compacted else ends[t]
            for p in partitions
            for t in (self._topic_partition(p),)
        }

    async def _reread_since_mark(self) -> None:
        """Read from the task's own mark to the positions, to restore the memory of repeats."""
        upto = {partition: end for partition, end in self._committed.items() if partition in self._partitions.next}
        while any(self._partitions.next[partition] < end for partition, end in upto.items()):
            await self._partitions.fetch(0.5)
            for partition, record in self._partitions.take_until(upto):
                self._decode(partition, record.item, record.at_ns, count=False)

    async def read(
        self, max_messages: int = 1000, timeout_s: float = 0.1, *, upto: Positions | None = None
    ) -> list[Message]:
        """See `sdfstream.bus.task.Task`."""
        self._check()
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        wait_s = 0.0
        while True:
            with mapped("reading"):
                await self._partitions.fetch(wait_s)
                taken = self._take(max_messages, upto, loop.time())
                found = self._decoded(taken)
                if found and upto is None and self.work.slice_ns and not any(is_urgent(m.topic, m.body) for m in found):
                    found += self._decoded(await self._rest_of_slice(max_messages - len(taken)))
            if taken:
                self._progress_s = loop.time()
            if found:
                found.sort(key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))
                return found
            wait_s = deadline_s - loop.time()
            if wait_s <= 0:
                await self._check_stalled(loop.time())
                return []

    async def _rest_of_slice(self, max_messages: int) -> Any:
        """What enters until the present slice ends; what is of the next one stays queued, or each would be cut in two.

        The brokers' clocks are near this host's, or it does not matter. The client asks for more of a partition only
        once it has handed on what it has, which is what came first: hence the second fetch.
        """
        now_ns, slice_ns = self._bus.clock(), self.work.slice_ns
        end_ns = (now_ns // slice_ns + 1) * slice_ns
        await asyncio.sleep((end_ns - now_ns) / NS_PER_S + _LATE_S)
        await self._partitions.fetch(0.0)
        await self._partitions.fetch(_LATE_S)
        return self._partitions.take(max_messages, READ_BYTES, before_ns=end_ns)

    def _take(self, max_messages: int, upto: Positions | None, now_s: float) -> Any:
        if upto is not None:
            return self._partitions.take_until(upto, max_messages, READ_BYTES)
        taken = self._partitions.take(max_messages, READ_BYTES)
        if taken or not self._partitions.held_back():
            self._held_since_s = None
            return taken
        if self._held_since_s is None:
            self._held_since_s = now_s
        if now_s - self._held_since_s < HOLD_S:
            return taken
        self._bus.counters.add("unaligned", self.name)
        self._partitions.give_up()
        return self._partitions.take(max_messages, READ_BYTES)

    def positions(self) -> dict[Partition, int]:
        """See `sdfstream.bus.task.Task`."""
        return dict(self._partitions.next)

    def seek(self, positions: Positions) -> None:
        """See `sdfstream.bus.task.Task`."""
        self._partitions.seek(positions)

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
        where = self.positions() if positions is None else {**self._committed, **positions}
        passed = [one for one in self._dead_letters if one.offset < where.get(one.partition, 0)]
        missing = [one for one in passed if not one.read.has_dead_letter]
        encoded = self._writer.encode([*outputs, *map(self._dead_letter, missing)])
        marked = self._mark(where, own=mark)
        after = {**({} if mark else self._notes), **(notes or {})}
        changed = after if marked is not None else dict(notes or {})
        for one in missing:
            one.read.has_dead_letter = True
        try:
            broker_ns = await self._writer.write(encoded, where, changed, marked)
        except BaseException as error:
            for one in missing:
                one.read.has_dead_letter = False
            self.over = f"its commit did not end well ({type(error).__name__})"
            self._bus.counters.add("commit-failed", self.name)
            raise
        self._partitions.set_broker_time(broker_ns)
        self._dead_letters = [one for one in self._dead_letters if one.offset >= where.get(one.partition, 0)]
        self._committed = where
        self._notes = {name: note for name, note in after.items() if note is not None}
        for output in outputs:
            self._bus.counters.add("published", output.topic)
        self._bus.counters.add("committed", self.name)
        await self._commit_to_group(marked is not None)

    def _mark(self, where: Positions, *, own: bool) -> notes.Mark | None:
        """The mark to write with a commit to `where`; None: none."""
        now_s = asyncio.get_running_loop().time()
        if own:
            self._own_mark, self._marked_s = None, NEVER_S
            return notes.Mark(dict(where), self._watch.dump(), dict(self._partitions.floors_ns))
        if self._own_mark is None and now_s - self._marked_s >= _MARK_S:
            self._own_mark = notes.Mark(
                self.positions(), self._watch.dump(), dict(self._partitions.floors_ns), own=False
            )
        due = self._own_mark
        if due is None or any(where.get(partition, 0) < at for partition, at in due.positions.items()):
            return None
        self._own_mark, self._marked_s = None, now_s
        return due

    async def _commit_to_group(self, marked: bool) -> None:
        """Commit the positions to the stage's group, for tools, and the offset at which the task's notes begin."""
        now_s = asyncio.get_running_loop().time()
        if not marked and now_s - self._group_committed_s < _GROUP_COMMIT_S:
            return
        self._group_committed_s = now_s
        self._bus.counters.add("marked", self.name, n=marked)
        offsets = {
            self._topic_partition(partition): offset
            for partition, offset in self._committed.items()
            if partition in self._partitions.next
        }
        if self._writer.begin_offset is not None:
            offsets[self._writer.checkpoint] = self._writer.begin_offset
        with suppress(KafkaError, IllegalStateError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                if offsets:
                    await self._consumer.commit(offsets)

    def known_until_ns(self) -> int | None:
        """See `sdfstream.bus.task.Task`."""
        return self._partitions.known_until_ns()

    def lag(self) -> int:
        """See `sdfstream.bus.task.Task`."""
        return self._partitions.lag()

    async def close(self) -> None:
        """See `sdfstream.bus.task.Task`."""
        if self.closed:
            return
        self.closed = True
        self._bus.decoded.end(self.work.name, self._topics)
        self.over = self.over or "it was closed"
        await stop(self._consumer)
        await stop(self._producer)

    def _check(self) -> None:
        if self.over:
            raise BusError(f"task {self.name} is over: {self.over}")

    def _topic_partition(self, partition: Partition) -> Any:
        return TopicPartition(self._bus.config.prefix + partition[0], partition[1])

    def _count_lost(self, topic: str, n: int) -> None:
        self._bus.counters.add("lost", f"{self.work.name}:{topic}", n)

    def _decoded(self, taken: Any) -> list[Message]:
        return [m for p, queued in taken if (m := self._decode(p, queued.item, queued.at_ns)) is not None]

    def _decode(self, partition: Partition, record: Any, at_ns: int, *, count: bool = True) -> Message | None:
        """The message in `record`; None for a repeat, and for one that cannot be read (a dead letter is queued)."""
        topic, number = partition
        read = self._bus.decoded.of(topic, number, record)
        decoded = read.outcome
        if isinstance(decoded, FormatError):
            if count:
                self._bus.counters.add("refused", decoded.reason)
                self._add_dead_letter(partition, record.offset, read, decoded)
            return None
        if not self._watch.see(topic, read.key, decoded.boot_id, decoded.batch_seq):
            return None
        if decoded.refused_rows and count:
            self._bus.counters.add("refused", "null-rows", decoded.refused_rows)
            why = FormatError("null-rows", f"{decoded.refused_rows} rows have a null where none may be")
            self._add_dead_letter(partition, record.offset, read, why)
        self._bus.counters.add("delivered", topic, n=count)
        seq = record.offset | number << PARTITION_BITS
        return Message(topic, read.key, decoded.body, at_ns, seq, decoded.boot_id, decoded.batch_seq)

    def _add_dead_letter(self, partition: Partition, offset: int, read: ReadRecord, why: FormatError) -> None:
        """Queue a dead letter, unless the last commit has passed its message: then that commit sent it."""
        if not dead_letters.is_dead(partition[0]) and offset >= self._committed.get(partition, 0):
            self._dead_letters.append(_RefusedRecord(partition, offset, read, why, self._bus.clock()))

    def _dead_letter(self, one: _RefusedRecord) -> Output:
        limit, read = self._bus.config.max_message_bytes, one.read
        return fitting.dead_letter(limit, one.partition[0], read.key, read.headers, read.value, one.why, one.at_ns)

    async def _check_stalled(self, now_s: float) -> None:
        """End the task when its consumer got nothing for `stall_s` although the brokers have more."""
        if now_s - self._progress_s < self._bus.config.stall_s:
            return
        self._progress_s = now_s
        if await self._partitions.stalled():
            self._bus.counters.add("consumer-restarted", self.work.name)
            self.over = "its consumer stands still although there is more"
            self._check()
