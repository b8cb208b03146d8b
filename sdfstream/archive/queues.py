"""The rows between bus and archive: one queue per topic, first in, first out. Pure; time comes in.

A queue holds pending inserts, and behind them the messages that are in no batch yet. Only the first of its inserts is
ever made, so what a table holds of a partition is always everything up to one offset, give or take the one insert
whose outcome is not known; that one has an intent on the bus. Queues do not wait for each other: a table that refuses
holds up its own topic and no other.

============ ===================================================== ==========================================
rows are     when                                                  and then
============ ===================================================== ==========================================
waiting      read, in no batch yet (`Waiting`)                     cut, when due and first; or when memory is short
recovering   a former owner committed the intent and went; the     in memory, when all of it was read again or the
             messages are read again from the bus                  bus has no more of it
in memory    cut, and not the first or not yet tried               intended, when first and due
spilled      cut, rows in a file (`Spill`); the file counts for    intended, likewise
             nothing as long as a bus has the messages too
intended     the intent is committed; the insert runs, or failed   gone, when the engine took the insert, or refused it
             and is made again, with the same token                for good and it is stored as a failed insert: the
                                                                   next commit moves the positions and removes the
                                                                   intent
============ ===================================================== ==========================================

A position is therefore the start of the first pending insert with messages of the partition, or the end of all
inserts; it never depends on memory or files of this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sdfstream.archive.batching import Batch, Waiting, in_order, message_bytes
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.intent import Intent, token
from sdfstream.records.message import Message
from sdfstream.records.position import Partition, Positions, offset_of, partition_of
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

NOWHERE: Final = -1
"""The position of a partition from which nothing was archived yet."""


@dataclass(slots=True, eq=False)
class PendingInsert:
    """One insert that is not made yet."""

    intent: Intent
    since_ns: int
    messages: tuple[Message, ...] | None = None
    """None: the rows are in `file`, or the insert is recovering."""
    file: str | None = None
    bytes: int = 0
    """In memory."""
    intended_ns: int | None = None
    """When the intent was last committed; None: not by this task."""
    recovered: list[Message] | None = None
    """While recovering, the messages read again so far; else None."""

    @property
    def complete(self) -> bool:
        """Whether all rows are here, in memory or in a file."""
        return self.messages is not None or (self.file is not None and self.recovered is None)


@dataclass(slots=True)
class TopicQueue:
    """The pending inserts of one topic, and the messages that wait behind them."""

    inserts: deque[PendingInsert] = field(default_factory=deque)
    waiting: Waiting = field(default_factory=Waiting)
    begins: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind all pending inserts."""
    covered: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind the inserts that a former owner left."""
    read: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind every message added."""
    retry_at_ns: int = 0
    failures: int = 0
    """Failures in a row of the first insert."""

    def start(self, partition: int) -> int:
        """The position from which a next owner would have to read; `NOWHERE`: none yet."""
        for insert in self.inserts:
            if partition in insert.intent.spans:
                return insert.intent.spans[partition].start
        if not self.waiting.partitions[partition]:
            self.begins[partition] = max(self.begins.get(partition, NOWHERE), self.read.get(partition, NOWHERE))
        return self.begins.get(partition, NOWHERE)


class InsertQueues:
    """The queues of all topics of one task.

    Parameters
    ----------
    saved : mapping
        The task's positions when it began.
    counters : Counters
        ``repeats``: messages left out of a repeated insert, as they were left out the first time.
        ``lost.<topic>`` (rows): in an intent, and no longer on the bus; they may have been inserted before.
    """

    def __init__(self, config: ArchiveConfig, saved: Positions, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._saved = dict(saved)
        self._queues: dict[str, TopicQueue] = {}
        self.bytes = 0
        """Of messages in memory."""

    # -- input ------------------------------------------------------------------------------------------------

    def adopt(self, inserts: Iterable[PendingInsert], now_ns: int) -> None:
        """Queue the inserts that a former owner left, in order; messages that a bus has are read again first."""
        for insert in inserts:
            insert.since_ns = now_ns
            queue = self._queue(insert.intent.topic)
            queue.inserts.append(insert)
            for partition, span in insert.intent.spans.items():
                queue.begins[partition] = queue.covered[partition] = span.end
            if insert.intent.spans:
                insert.recovered = []

    def add(self, messages: Iterable[Message], read: Positions, now_ns: int) -> None:
        """Queue `messages`; `read` is the position behind every message read so far, per partition."""
        for message in messages:
            queue = self._queue(message.topic)
            _, partition = partition_of(message)
            if offset_of(message) < queue.covered.get(partition, 0):
                self._recover(queue, partition, message)
            else:
                self.bytes += queue.waiting.add(message, now_ns)
        for (topic, partition), position in read.items():
            self._queue(topic).read[partition] = position
        for queue in self._queues.values():
            for insert in queue.inserts:
                if insert.recovered is not None and self._recovered_all(queue, insert):
                    self._complete(insert)

    def give_up_recovery(self) -> None:
        """The bus has no more messages: what was not read again by now is gone."""
        for queue in self._queues.values():
            for insert in queue.inserts:
                if insert.recovered is not None:
                    self._complete(insert)

    @property
    def recovering(self) -> bool:
        """Whether messages of a former owner's intent are still to be read again."""
        return any(i.recovered is not None for queue in self._queues.values() for i in queue.inserts)

    # -- output -----------------------------------------------------------------------------------------------

    def ready(self, now_ns: int, *, force: bool = False) -> list[PendingInsert]:
        """The inserts of the next round, at most one a queue, the oldest first; none as long as none is due.

        What is due brings along what has waited half its time. `force`: all but those that wait to retry.
        """
        limits = self._config.limits
        queues = [q for q in self._queues.values() if q.retry_at_ns <= now_ns]
        idle = [q for q in queues if not q.inserts and q.waiting.messages]
        if force or any((q.waiting.due_ns(limits) or 0) <= now_ns for q in idle):
            for queue in idle:
                if force or (queue.waiting.joins_ns(limits) or 0) <= now_ns:
                    self._cut(queue)
        out = [q.inserts[0] for q in queues if q.inserts and q.inserts[0].complete]
        return sorted(out, key=lambda i: i.since_ns)

    def done(self, insert: PendingInsert) -> None:
        """Drop `insert`, the first of its queue: it is in its table, or stored as a failed insert."""
        queue = self._queue(insert.intent.topic)
        assert queue.inserts[0] is insert, insert.intent
        queue.inserts.popleft()
        queue.failures = queue.retry_at_ns = 0
        self.bytes -= insert.bytes

    def failed(self, insert: PendingInsert, now_ns: int) -> None:
        """Retry `insert`, the first of its queue, later: the engine refused it for a reason that may pass."""
        queue = self._queue(insert.intent.topic)
        wait_ms = min(self._config.retry_ms << min(queue.failures, 16), self._config.retry_most_ms)
        queue.failures += 1
        queue.retry_at_ns = now_ns + wait_ms * NS_PER_MS

    def was_tried(self, insert: PendingInsert) -> bool:
        """Whether `insert`, the first of its queue, failed before."""
        return self._queue(insert.intent.topic).failures > 0

    def retry_now(self) -> None:
        """End all waiting between retries."""
        for queue in self._queues.values():
            queue.retry_at_ns = 0

    def surplus(self) -> PendingInsert | None:
        """The largest insert in memory of the queues that wait for the engine; None when there is none."""
        best: tuple[int, TopicQueue, PendingInsert | None] | None = None
        for queue in self._queues.values():
            if not queue.failures:
                continue
            in_memory = [i for i in queue.inserts if i.messages is not None]
            candidates: list[tuple[int, PendingInsert | None]] = [(i.bytes, i) for i in in_memory]
            candidates += [(queue.waiting.bytes, None)] if queue.waiting.messages else []
            for size, insert in candidates:
                if best is None or size > best[0]:
                    best = size, queue, insert
        if best is None:
            return None
        return best[2] or self._cut(best[1])

    def spilled(self, insert: PendingInsert, file: str) -> None:
        """Drop the messages of `insert` from memory: its rows are in `file`."""
        insert.file, insert.messages = file, None
        self.bytes -= insert.bytes
        insert.bytes = 0

    # -- state ------------------------------------------------------------------------------------------------

    def positions(self) -> dict[Partition, int]:
        """The position from which a next owner has to read, per partition where one is known."""
        found = {}
        for topic, queue in self._queues.items():
            for partition in {*queue.begins, *queue.read, *queue.waiting.partitions}:
                start = queue.start(partition)
                if start != NOWHERE:
                    found[topic, partition] = start
        return found

    def wait_ns(self, now_ns: int) -> int | None:
        """Time until an insert is due; None when nothing waits."""
        waits = []
        for queue in self._queues.values():
            due_ns = queue.inserts[0].since_ns if queue.inserts else queue.waiting.due_ns(self._config.limits)
            if queue.inserts and not queue.inserts[0].complete:
                continue
            if due_ns is not None:
                waits.append(max(due_ns, queue.retry_at_ns) - now_ns)
        return max(0, min(waits)) if waits else None

    @property
    def empty(self) -> bool:
        """Whether every message added is archived."""
        return not any(queue.inserts or queue.waiting.messages for queue in self._queues.values())

    @property
    def blocked(self) -> bool:
        """Whether every queue with rows waits for the engine, or for messages to be read again."""
        left = [queue for queue in self._queues.values() if queue.inserts or queue.waiting.messages]
        return all(queue.failures or (queue.inserts and not queue.inserts[0].complete) for queue in left)

    def rows_in_memory(self) -> dict[str, int]:
        """Rows by topic that are in this process's memory only."""
        rows = {topic: queue.waiting.rows for topic, queue in self._queues.items()}
        for topic, queue in self._queues.items():
            rows[topic] += sum(i.intent.rows for i in queue.inserts if i.messages is not None)
        return rows

    @property
    def oldest_ns(self) -> int | None:
        """Bus time of the oldest message not yet archived; None when there is none."""
        oldest = [queue.inserts[0].intent.at_ns for queue in self._queues.values() if queue.inserts]
        oldest += [queue.waiting.messages[0].bus_at_ns for queue in self._queues.values() if queue.waiting.messages]
        return min(oldest, default=None)

    @property
    def since_ns(self) -> int | None:
        """When the oldest message not yet archived was read; None when there is none."""
        since = [queue.inserts[0].since_ns for queue in self._queues.values() if queue.inserts]
        since += [queue.waiting.since_ns[0] for queue in self._queues.values() if queue.waiting.messages]
        return min(since, default=None)

    # -- internals --------------------------------------------------------------------------------------------

    def _queue(self, topic: str) -> TopicQueue:
        queue = self._queues.get(topic)
        if queue is None:
            begins = {p: position for (t, p), position in self._saved.items() if t == topic}
            queue = self._queues[topic] = TopicQueue(begins=begins)
        return queue

    def _cut(self, queue: TopicQueue) -> PendingInsert:
        batch: Batch = queue.waiting.cut(self._config.limits, self._config.bus_id, queue.begins, queue.read)
        queue.begins |= {partition: span.end for partition, span in batch.intent.spans.items()}
        insert = PendingInsert(batch.intent, batch.since_ns, batch.messages, bytes=batch.bytes)
        queue.inserts.append(insert)
        return insert

    def _recover(self, queue: TopicQueue, partition: int, message: Message) -> None:
        """Take `message`, read again, into the recovering insert that names it."""
        offset = offset_of(message)
        for insert in queue.inserts:
            span = insert.intent.spans.get(partition)
            if span is None or insert.recovered is None or not span.start <= offset < span.end:
                continue
            if not span.has(offset):
                self._counters.add("repeats")
            elif insert.file is None:
                insert.recovered.append(message)
                size = message_bytes(message)
                insert.bytes += size
                self.bytes += size
            return

    @staticmethod
    def _recovered_all(queue: TopicQueue, insert: PendingInsert) -> bool:
        """Whether every message of `insert` that the bus still has was read again."""
        if insert.file is None and len(insert.recovered or ()) == insert.intent.messages:
            return True
        return all(queue.read.get(p, 0) >= span.runs[-1][1] for p, span in insert.intent.spans.items() if span.runs)

    def _complete(self, insert: PendingInsert) -> None:
        messages, insert.recovered = in_order(insert.recovered or ()), None
        if insert.file is not None:
            return
        insert.messages = messages
        gone = insert.intent.rows - sum(m.rows for m in messages)
        self._counters.add("lost", insert.intent.topic, max(0, gone))
        if len(messages) == insert.intent.messages and messages:
            # the same, unless the topic was made anew under its name and these are others at the same offsets
            made = token(self._config.bus_id, insert.intent.topic, messages)
            insert.intent = replace(insert.intent, token=made)


def left_behind(
    intent: Intent | None, files: Sequence[PendingInsert], positions: Mapping[int, int]
) -> tuple[list[PendingInsert], list[PendingInsert]]:
    """What a former owner left of one topic: inserts to go on with, in order, and files to delete.

    The intent comes first, with its rows from the file of the same token if there is one. Files follow as long as each
    begins where the one before ends; any other file was overtaken by another owner, and its rows are on the bus.
    """
    at = dict(positions)
    taken: list[PendingInsert] = []
    if intent is not None and any(span.end > at.get(p, NOWHERE) for p, span in intent.spans.items()):
        same = [f for f in files if f.intent.token == intent.token]
        first = same[0] if same else PendingInsert(intent, 0)
        first.intended_ns = 0
        taken.append(first)
        at |= {p: span.end for p, span in intent.spans.items()}
    for file in files:
        if file in taken:
            continue
        if not _fits(file.intent, at):
            break
        taken.append(file)
        at |= {p: span.end for p, span in file.intent.spans.items()}
    return taken, [f for f in files if f not in taken]


def _fits(intent: Intent, at: Mapping[int, int]) -> bool:
    return all(span.start == at.get(p, NOWHERE) for p, span in intent.spans.items())
