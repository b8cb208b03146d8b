"""A unit of work on Kafka: one manually assigned consumer, one transactional producer, notes on the checkpoint topic.

The transactional id is the task's name, so whoever opens the task next fences its former owner, and everything a
commit says (outputs, dead letters, positions, notes) becomes visible at once or never. Positions live in the notes;
the consumer group of the stage is told them about once a second, for the tools that show lag.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka import notes
from sdfstream.bus.kafka.checkpoint_io import read_notes, task_name
from sdfstream.bus.kafka.config import CHECKPOINT_PLACES
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import STOP_S, make_consumer, stop
from sdfstream.bus.kafka.merged_io import LOG_APPEND_TIME, Lanes
from sdfstream.bus.kafka.producer_io import send, transactional
from sdfstream.bus.sequences import Numbers, SequenceWatch
from sdfstream.bus.task import Saved, Work
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Message, Output
from sdfstream.records.position import PARTITION_BITS, Part, Positions
from sdfstream.records.topics import CHECKPOINT
from sdfstream.records.units import NS_PER_MS

if TYPE_CHECKING:
    from sdfstream.bus.kafka.bus_io import KafkaBus

READ_BYTES: Final = 16 << 20
"""One read gives about this much at most, compressed as it came."""
HOLD_S: Final = 3.0
"""So long a partition that is behind may hold the others back; then what is there goes on without it."""
NEVER_S: Final = float("inf")
_TELL_S: Final = 1.0
_MARK_S: Final = 10.0
_Opened = tuple[Saved, notes.Mark | None, int]


class KafkaTask:
    """A unit in this process's hands (`sdfstream.bus.task.Task`); made by `open`.

    Notes
    -----
    Counters of the bus, beside those of `KafkaSubscription`: ``unaligned`` (a partition held others back too long),
    ``committed``, ``commit-failed`` and ``marked`` (by task).
    """

    def __init__(self, bus: KafkaBus, work: Work, unit: int, producer: Any, consumer: Any) -> None:
        self.work = work
        self.unit = unit
        self.saved = Saved()
        self.name = task_name(work, unit)
        self._bus = bus
        self._producer = producer
        self._consumer = consumer
        self._watch = SequenceWatch(bus.counters, work.name)
        self._lanes = Lanes(consumer, bus.config, lambda topic, n: self._count_lost(topic, n))
        self._numbers = Numbers()
        self._boot_id = uuid.uuid4().hex
        self._letters: list[tuple[Part, int, Output]] = []
        """Of what could not be read, to be sent once the positions pass it."""
        self._committed: dict[Part, int] = {}
        self._notes: dict[str, bytes] = {}
        self._commit_number = 0
        self.over: str = ""
        """Why nothing more can be done with it; empty: it lives."""
        self.closed = False
        self._checkpoint: Any = None
        self._begin_offset: int | None = None
        self._own_mark: notes.Mark | None = None
        """Where the task itself would like to mark, once everything before it is committed."""
        self._told_s = self._progress_s = asyncio.get_running_loop().time()
        self._marked_s = NEVER_S
        self._held_since_s: float | None = None

    @classmethod
    async def open(cls, bus: KafkaBus, work: Work, unit: int) -> KafkaTask:
        """Fence whoever had the unit, find what its last commit left, and begin there.

        Raises
        ------
        BusError, UnavailableError
            The brokers did not let us.
        FormatError
            What was left cannot be read.
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
        places = await self._bus.partitions_of(self._bus.config.prefix + CHECKPOINT.name)
        number = places[(sum(self.work.name.encode()) + self.unit) % min(len(places), CHECKPOINT_PLACES)]
        self._checkpoint = TopicPartition(self._bus.config.prefix + CHECKPOINT.name, number)
        reader = await read_notes(self._consumer, self._checkpoint, self.name)
        self.saved, mark = reader.saved(), reader.mark()
        self._commit_number, self._begin_offset = reader.number + 1, reader.begin_offset
        self._notes, self._committed = dict(self.saved.notes), dict(self.saved.positions)
        parts = await self._parts()
        self._consumer.assign([*map(self._theirs, parts), self._checkpoint])
        self._consumer.pause(self._checkpoint)  # only there for its commits
        self._consumer.seek(self._checkpoint, 0)
        fresh = not self.saved.positions
        start = await self._first(parts, fresh)
        # it moves nothing for an old unit, and tells us the brokers' time
        await self.commit(positions=start if fresh else self._committed)
        floors = dict.fromkeys(parts, 0 if self.work.from_start else self._lanes.now_ns()) if fresh else {}
        if mark is not None:
            start |= {p: n for p, n in mark.positions.items() if p in start}
            floors |= mark.floors_ns
            self._watch.load(mark.numbers)
        elif not fresh:
            start |= {p: n for p, n in self.saved.positions.items() if p in start}
        await self._lanes.open(start, floors)
        if mark is None or not mark.own:  # whoever marks by itself does so from now on too: ours would void its own
            self._marked_s = asyncio.get_running_loop().time()
        if fresh:
            self.saved = Saved(dict(start))
        elif mark is not None and not mark.own:
            await self._pass_over()

    async def _parts(self) -> list[Part]:
        """The unit's partitions, as they are now: a topic may have got more."""
        found: list[Part] = []
        for topic in (*self.work.topics, *self.work.for_all):
            every = await self._bus.partitions_of(self._bus.config.prefix + topic)
            found += [(topic, n) for n in every if topic in self.work.for_all or n % self.work.units == self.unit]
        return found

    async def _first(self, parts: Sequence[Part], fresh: bool) -> dict[Part, int]:
        """Where partitions without a position begin.

        A new unit takes what enters from now on, and the whole of a compacted topic, since that is what holds now. A
        partition that is new to an old unit was read by nobody.
        """
        begins = await self._consumer.beginning_offsets([self._theirs(p) for p in parts])
        ends = await self._consumer.end_offsets([self._theirs(p) for p in parts])
        whole = self.work.from_start or not fresh
        return {
            p: begins[t] if whole or codec.topic_of(p[0]).compacted else ends[t]
            for p in parts
            for t in (self._theirs(p),)
        }

    async def _pass_over(self) -> None:
        """Read from the task's own mark to the positions, for the memory of repeats alone."""
        upto = {part: end for part, end in self._committed.items() if part in self._lanes.next}
        while any(self._lanes.next[part] < end for part, end in upto.items()):
            await self._lanes.fetch(0.5)
            for part, record in self._lanes.take_until(upto):
                self._decoded(part, record.item, record.at_ns, keep=False)

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
                await self._lanes.fetch(wait_s)
                taken = self._taken(max_messages, upto, loop.time())
            if taken:
                self._progress_s = loop.time()
                found = [m for part, held in taken if (m := self._decoded(part, held.item, held.at_ns)) is not None]
                found.sort(key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))
                if found:
                    return found
            wait_s = deadline_s - loop.time()
            if wait_s <= 0:
                await self._look_for_a_stall(loop.time())
                return []

    def _taken(self, max_messages: int, upto: Positions | None, now_s: float) -> Any:
        if upto is not None:
            return self._lanes.take_until(upto, max_messages, READ_BYTES)
        taken = self._lanes.take(max_messages, READ_BYTES)
        if taken or not self._lanes.held_back():
            self._held_since_s = None
            return taken
        if self._held_since_s is None:
            self._held_since_s = now_s
        if now_s - self._held_since_s < HOLD_S:
            return taken
        self._bus.counters.add("unaligned", self.name)
        return self._lanes.take(max_messages, READ_BYTES, regardless=True)

    def positions(self) -> dict[Part, int]:
        """See `sdfstream.bus.task.Task`."""
        return dict(self._lanes.next)

    def seek(self, positions: Positions) -> None:
        """See `sdfstream.bus.task.Task`."""
        self._lanes.seek(positions)

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
        letters = [letter for part, offset, letter in self._letters if offset < where.get(part, 0)]
        made = self._encoded([*outputs, *letters])
        marked = self._mark(where, own=mark)
        kept = {**({} if mark else self._notes), **(notes or {})}
        changed = kept if marked is not None else dict(notes or {})
        try:
            await self._transaction(made, where, changed, marked)
        except BaseException as error:
            self.over = f"its commit did not end well ({type(error).__name__})"
            self._bus.counters.add("commit-failed", self.name)
            raise
        self._letters = [one for one in self._letters if one[1] >= where.get(one[0], 0)]
        self._committed, self._commit_number = where, self._commit_number + 1
        self._notes = {name: note for name, note in kept.items() if note is not None}
        for output in outputs:
            self._bus.counters.add("published", output.topic)
        self._bus.counters.add("committed", self.name)
        await self._tell(marked is not None)

    def _encoded(self, outputs: Sequence[Output]) -> list[tuple[str, str, codec.Headers, bytes]]:
        """All outputs in wire form, before anything is sent."""
        for output in outputs:
            codec.check(output)
        at_ns = self._bus.now_ns()
        made = []
        for output in outputs:
            number = self._numbers.take(output.topic, output.key)
            form = self._bus.config.compression
            headers, value = codec.encode(output, self._boot_id, number, bus_at_ns=at_ns, compression=form)
            made.append((output.topic, output.key, headers, value))
        return made

    async def _transaction(
        self,
        made: Sequence[tuple[str, str, codec.Headers, bytes]],
        where: Positions,
        changed: Mapping[str, bytes | None],
        marked: notes.Mark | None,
    ) -> None:
        config, producer = self._bus.config, self._producer
        with mapped(f"committing {self.name}"):
            await producer.begin_transaction()
            waiting = []
            try:
                for topic, key, headers, value in made:
                    waiting.append(await send(self._bus, producer, topic, key, headers, value))
                for record in notes.records(self.name, where, changed, marked, self._commit_number):
                    sent = await producer.send(
                        self._checkpoint.topic,
                        record.value,
                        key=record.key.encode(),
                        headers=record.headers,
                        partition=self._checkpoint.partition,
                    )
                    if record.key == f"{self.name}|{notes.BEGIN}|0":
                        sent.add_done_callback(self._begun)
                    waiting.append(sent)
            finally:
                ended = await asyncio.gather(*waiting, return_exceptions=True)
            failed = next((e for e in ended if isinstance(e, BaseException)), None)
            if failed is not None:
                raise failed
            async with asyncio.timeout(config.request_timeout_ms / 1000):
                await producer.commit_transaction()
            self._hear_time(ended[-1])

    def _hear_time(self, stored: Any) -> None:
        """Take bus time from what the brokers stamped our last record with."""
        by_broker = stored.timestamp_type == LOG_APPEND_TIME and stored.timestamp is not None
        self._lanes.told_ns(stored.timestamp * NS_PER_MS if by_broker else self._bus.clock())

    def _begun(self, sent: Any) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self._begin_offset = sent.result().offset

    def _mark(self, where: Positions, *, own: bool) -> notes.Mark | None:
        """The mark that goes with a commit to `where`."""
        now_s = asyncio.get_running_loop().time()
        if own:
            self._own_mark, self._marked_s = None, NEVER_S
            return notes.Mark(dict(where), self._watch.dump(), dict(self._lanes.floors_ns))
        if self._own_mark is None and now_s - self._marked_s >= _MARK_S:
            self._own_mark = notes.Mark(self.positions(), self._watch.dump(), dict(self._lanes.floors_ns), own=False)
        made = self._own_mark
        if made is None or any(where.get(part, 0) < at for part, at in made.positions.items()):
            return None
        self._own_mark, self._marked_s = None, now_s
        return made

    async def _tell(self, marked: bool) -> None:
        """Tell the stage's group where we are: for tools, and where our notes begin."""
        now_s = asyncio.get_running_loop().time()
        if not marked and now_s - self._told_s < _TELL_S:
            return
        self._told_s = now_s
        self._bus.counters.add("marked", self.name, n=marked)
        told = {self._theirs(part): offset for part, offset in self._committed.items() if part in self._lanes.next}
        if self._begin_offset is not None:
            told[self._checkpoint] = self._begin_offset
        with suppress(KafkaError, IllegalStateError, TimeoutError):
            async with asyncio.timeout(STOP_S):
                if told:
                    await self._consumer.commit(told)

    def known_until_ns(self) -> int | None:
        """See `sdfstream.bus.task.Task`."""
        return self._lanes.known_until_ns()

    def lag(self) -> int:
        """See `sdfstream.bus.task.Task`."""
        return self._lanes.lag()

    async def close(self) -> None:
        """See `sdfstream.bus.task.Task`."""
        if self.closed:
            return
        self.closed = True
        self.over = self.over or "it was closed"
        await stop(self._consumer)
        await stop(self._producer)

    def _check(self) -> None:
        if self.over:
            raise BusError(f"task {self.name} is over: {self.over}")

    def _theirs(self, part: Part) -> Any:
        return TopicPartition(self._bus.config.prefix + part[0], part[1])

    def _count_lost(self, topic: str, n: int) -> None:
        self._bus.counters.add("lost", f"{self.work.name}:{topic}", n)

    def _decoded(self, part: Part, record: Any, at_ns: int, *, keep: bool = True) -> Message | None:
        """What `record` says; None for a repeat, and for what cannot be read (a dead letter tells)."""
        topic, partition = part
        headers = [(name, raw or b"") for name, raw in record.headers]
        key = (record.key or b"").decode(errors="replace")
        value = record.value or b""
        try:
            decoded = codec.decode(topic, headers, value)
        except FormatError as error:
            if keep:
                self._bus.counters.add("refused", error.reason)
                self._letter(part, record.offset, key, headers, value, error)
            return None
        if not self._watch.see(topic, key, decoded.boot_id, decoded.batch_seq):
            return None
        if decoded.refused_rows and keep:
            self._bus.counters.add("refused", "null-rows", decoded.refused_rows)
            why = FormatError("null-rows", f"{decoded.refused_rows} rows have a null where none may be")
            self._letter(part, record.offset, key, headers, value, why)
        self._bus.counters.add("delivered", topic, n=keep)
        seq = record.offset | partition << PARTITION_BITS
        return Message(topic, key, decoded.body, at_ns, seq, decoded.boot_id, decoded.batch_seq)

    def _letter(
        self, part: Part, offset: int, key: str, headers: codec.Headers, value: bytes, why: FormatError
    ) -> None:
        """Keep what could not be read; behind the last commit that was done when it was first read."""
        if not dead_letters.is_dead(part[0]) and offset >= self._committed.get(part, 0):
            letter = dead_letters.dead_letter(part[0], key, headers, value, why, self._bus.clock())
            self._letters.append((part, offset, letter))

    async def _look_for_a_stall(self, now_s: float) -> None:
        """Nothing came for long: end the task when the brokers have had something for it all along."""
        if now_s - self._progress_s < self._bus.config.stall_s:
            return
        self._progress_s = now_s
        if await self._lanes.stands_still():
            self._bus.counters.add("consumer-restarted", self.work.name)
            self.over = "its consumer stands still although there is more"
            self._check()
