"""Where every row on its way into the archive stands: one lane per topic, first in, first out. Pure; time comes in.

A lane holds entries, each one insert, and behind them the messages that are in no batch yet. Only its first entry is
ever inserted, so what a table holds of a partition is always everything up to one offset, give or take the one insert
whose outcome is not known; that one has an intent on the bus. Lanes do not wait for each other: a table that refuses
holds up its own topic and no other.

============ ===================================================== ==========================================
an entry is  when                                                  and then
============ ===================================================== ==========================================
waiting      read, in no batch yet (`Waiting`)                     cut, when due and first; or when memory is short
being found  a former owner committed its intent and went; its     held, when all of it was read again or the bus
             messages come by again                                says that it has no more of it
held         cut, in memory, and not the first or not yet tried    intended, when it is the first and its time has come
spilled      cut, its rows in a file (`Spill`); no promise lies    intended, likewise
             in that as long as a bus has the messages too
intended     its intent is committed; its insert is under way, or  gone, when the engine took it, or refused it for good
             failed and will be made again, with the same token    and it is kept: the commit that says so moves the
                                                                   positions and takes the intent back
============ ===================================================== ==========================================

A position is therefore the start of the first entry that has a share of the partition, or what begins behind all
entries; it never depends on memory or files of this process.
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
from sdfstream.records.position import Part, Positions, offset_of, part_of
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

NOWHERE: Final = -1
"""The position of a partition of which nothing was dealt with yet."""


@dataclass(slots=True, eq=False)
class Entry:
    """One insert on its way."""

    intent: Intent
    since_ns: int
    messages: tuple[Message, ...] | None = None
    """None: its rows are in `file`, or it is still being found."""
    file: str | None = None
    bytes: int = 0
    """In memory."""
    intended_ns: int | None = None
    """When its intent was last committed; None: not by this task."""
    found: list[Message] | None = None
    """What came by again of an entry that is being found."""

    @property
    def whole(self) -> bool:
        """Whether it can be inserted."""
        return self.messages is not None or (self.file is not None and self.found is None)


@dataclass(slots=True)
class Lane:
    """The entries of one topic, and what waits behind them."""

    entries: deque[Entry] = field(default_factory=deque)
    waiting: Waiting = field(default_factory=Waiting)
    begins: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind all entries."""
    covered: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind the entries that were there when the task began."""
    read: dict[int, int] = field(default_factory=dict)
    """Per partition the position behind everything added."""
    retry_at_ns: int = 0
    failures: int = 0
    """In a row, of its first entry's insert."""

    def start(self, partition: int) -> int:
        """Where a next owner would have to go on; `NOWHERE` before anything of the partition was dealt with."""
        for entry in self.entries:
            if partition in entry.intent.spans:
                return entry.intent.spans[partition].start
        if not self.waiting.partitions[partition]:
            self.begins[partition] = max(self.begins.get(partition, NOWHERE), self.read.get(partition, NOWHERE))
        return self.begins.get(partition, NOWHERE)


class Lanes:
    """All lanes of one task.

    Parameters
    ----------
    saved : mapping
        The task's positions when it began.
    counters : Counters
        ``repeats``: messages left out of a batch that is made again, as they were the first time.
        ``lost.<topic>`` (rows): in an intent, and no longer on the bus; they may have been inserted before.
    """

    def __init__(self, config: ArchiveConfig, saved: Positions, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._saved = dict(saved)
        self._lanes: dict[str, Lane] = {}
        self.bytes = 0
        """Of messages in memory."""

    # -- what comes in ----------------------------------------------------------------------------------------

    def adopt(self, entries: Iterable[Entry], now_ns: int) -> None:
        """Take up entries that a former owner left, in order; whatever a bus has must come by again first."""
        for entry in entries:
            entry.since_ns = now_ns
            lane = self._lane(entry.intent.topic)
            lane.entries.append(entry)
            for partition, span in entry.intent.spans.items():
                lane.begins[partition] = lane.covered[partition] = span.end
            if entry.intent.spans:
                entry.found = []

    def add(self, messages: Iterable[Message], read: Positions, now_ns: int) -> None:
        """Let `messages` wait; `read` is the position behind everything that was read, by now, of each partition."""
        for message in messages:
            lane = self._lane(message.topic)
            _, partition = part_of(message)
            if offset_of(message) < lane.covered.get(partition, 0):
                self._again(lane, partition, message)
            else:
                self.bytes += lane.waiting.add(message, now_ns)
        for (topic, partition), position in read.items():
            self._lane(topic).read[partition] = position
        for lane in self._lanes.values():
            for entry in lane.entries:
                if entry.found is not None and self._passed(lane, entry):
                    self._complete(entry)

    def give_up_finding(self) -> None:
        """The bus says that it has given out everything: what has not come by again is not there any more."""
        for lane in self._lanes.values():
            for entry in lane.entries:
                if entry.found is not None:
                    self._complete(entry)

    @property
    def finding(self) -> bool:
        """Whether an entry is being found."""
        return any(e.found is not None for lane in self._lanes.values() for e in lane.entries)

    # -- what goes out ----------------------------------------------------------------------------------------

    def ready(self, now_ns: int, *, force: bool = False) -> list[Entry]:
        """The first entries whose time has come, the oldest first; with `force` of everything but what must wait."""
        out = []
        for lane in self._lanes.values():
            if lane.retry_at_ns > now_ns:
                continue
            due_ns = lane.waiting.due_ns(self._config.limits)
            if not lane.entries and due_ns is not None and (force or due_ns <= now_ns):
                self._cut(lane)
            if lane.entries and lane.entries[0].whole:
                out.append(lane.entries[0])
        return sorted(out, key=lambda e: e.since_ns)

    def done(self, entry: Entry) -> None:
        """The first entry of its lane is in its table, or kept."""
        lane = self._lane(entry.intent.topic)
        assert lane.entries[0] is entry, entry.intent
        lane.entries.popleft()
        lane.failures = lane.retry_at_ns = 0
        self.bytes -= entry.bytes

    def failed(self, entry: Entry, now_ns: int) -> None:
        """The engine did not take the first entry of its lane, for a reason that may pass."""
        lane = self._lane(entry.intent.topic)
        wait_ms = min(self._config.retry_ms << min(lane.failures, 16), self._config.retry_most_ms)
        lane.failures += 1
        lane.retry_at_ns = now_ns + wait_ms * NS_PER_MS

    def tried(self, entry: Entry) -> bool:
        """Whether the first entry of its lane failed before."""
        return self._lane(entry.intent.topic).failures > 0

    def retry_now(self) -> None:
        """Let no lane wait before it tries again."""
        for lane in self._lanes.values():
            lane.retry_at_ns = 0

    def surplus(self) -> Entry | None:
        """The largest thing in memory of a lane that is held up; None when there is none."""
        best: tuple[int, Lane, Entry | None] | None = None
        for lane in self._lanes.values():
            if not lane.failures:
                continue
            things: list[tuple[int, Entry | None]] = [(e.bytes, e) for e in lane.entries if e.messages is not None]
            things += [(lane.waiting.bytes, None)] if lane.waiting.messages else []
            for size, entry in things:
                if best is None or size > best[0]:
                    best = size, lane, entry
        if best is None:
            return None
        return best[2] or self._cut(best[1])

    def spilled(self, entry: Entry, file: str) -> None:
        """Its rows are in `file`."""
        entry.file, entry.messages = file, None
        self.bytes -= entry.bytes
        entry.bytes = 0

    # -- what can be said -------------------------------------------------------------------------------------

    def positions(self) -> dict[Part, int]:
        """Where a next owner has to go on, for every partition where that is known."""
        found = {}
        for topic, lane in self._lanes.items():
            for partition in {*lane.begins, *lane.read, *lane.waiting.partitions}:
                start = lane.start(partition)
                if start != NOWHERE:
                    found[topic, partition] = start
        return found

    def wait_ns(self, now_ns: int) -> int | None:
        """How long until an entry's time comes; None when nothing waits."""
        waits = []
        for lane in self._lanes.values():
            due_ns = lane.entries[0].since_ns if lane.entries else lane.waiting.due_ns(self._config.limits)
            if lane.entries and not lane.entries[0].whole:
                continue
            if due_ns is not None:
                waits.append(max(due_ns, lane.retry_at_ns) - now_ns)
        return max(0, min(waits)) if waits else None

    @property
    def empty(self) -> bool:
        """Whether everything is gone."""
        return not any(lane.entries or lane.waiting.messages for lane in self._lanes.values())

    @property
    def held_up(self) -> bool:
        """Whether what is left must wait: for the engine, or for messages that have not come by again."""
        left = [lane for lane in self._lanes.values() if lane.entries or lane.waiting.messages]
        return all(lane.failures or (lane.entries and not lane.entries[0].whole) for lane in left)

    def rows_in_memory(self) -> dict[str, int]:
        """Rows by topic that are nowhere but in memory here."""
        rows = {topic: lane.waiting.rows for topic, lane in self._lanes.items()}
        for topic, lane in self._lanes.items():
            rows[topic] += sum(e.intent.rows for e in lane.entries if e.messages is not None)
        return rows

    @property
    def oldest_ns(self) -> int | None:
        """When the oldest message on its way entered the bus; None when there is none."""
        oldest = [lane.entries[0].intent.at_ns for lane in self._lanes.values() if lane.entries]
        oldest += [lane.waiting.messages[0].bus_at_ns for lane in self._lanes.values() if lane.waiting.messages]
        return min(oldest, default=None)

    @property
    def since_ns(self) -> int | None:
        """When the oldest message on its way was read; None when there is none."""
        since = [lane.entries[0].since_ns for lane in self._lanes.values() if lane.entries]
        since += [lane.waiting.since_ns[0] for lane in self._lanes.values() if lane.waiting.messages]
        return min(since, default=None)

    # -- parts ------------------------------------------------------------------------------------------------

    def _lane(self, topic: str) -> Lane:
        lane = self._lanes.get(topic)
        if lane is None:
            begins = {p: position for (t, p), position in self._saved.items() if t == topic}
            lane = self._lanes[topic] = Lane(begins=begins)
        return lane

    def _cut(self, lane: Lane) -> Entry:
        batch: Batch = lane.waiting.cut(self._config.limits, self._config.bus_id, lane.begins, lane.read)
        lane.begins |= {partition: span.end for partition, span in batch.intent.spans.items()}
        entry = Entry(batch.intent, batch.since_ns, batch.messages, bytes=batch.bytes)
        lane.entries.append(entry)
        return entry

    def _again(self, lane: Lane, partition: int, message: Message) -> None:
        """A message of an entry that a former owner made came by again."""
        offset = offset_of(message)
        for entry in lane.entries:
            span = entry.intent.spans.get(partition)
            if span is None or entry.found is None or not span.start <= offset < span.end:
                continue
            if not span.has(offset):
                self._counters.add("repeats")
            elif entry.file is None:
                entry.found.append(message)
                size = message_bytes(message)
                entry.bytes += size
                self.bytes += size
            return

    @staticmethod
    def _passed(lane: Lane, entry: Entry) -> bool:
        """Whether every message of `entry` that the bus still has came by again."""
        if entry.file is None and len(entry.found or ()) == entry.intent.messages:
            return True
        return all(lane.read.get(p, 0) >= span.runs[-1][1] for p, span in entry.intent.spans.items() if span.runs)

    def _complete(self, entry: Entry) -> None:
        messages, entry.found = in_order(entry.found or ()), None
        if entry.file is not None:
            return
        entry.messages = messages
        gone = entry.intent.rows - sum(m.rows for m in messages)
        self._counters.add("lost", entry.intent.topic, max(0, gone))
        if len(messages) == entry.intent.messages and messages:
            # the same, unless the topic was made anew under its name and these are others at the same offsets
            made = token(self._config.bus_id, entry.intent.topic, messages)
            entry.intent = replace(entry.intent, token=made)


def left_behind(
    intent: Intent | None, files: Sequence[Entry], positions: Mapping[int, int]
) -> tuple[list[Entry], list[Entry]]:
    """What a former owner left of one topic: entries to go on with, in order, and files that are of no use.

    The intent comes first, from its file where there is one with its token. Files follow as long as each begins where
    the one before ends; a file that does not was overtaken by another owner, and what it holds is on the bus.
    """
    at = dict(positions)
    taken: list[Entry] = []
    if intent is not None and any(span.end > at.get(p, NOWHERE) for p, span in intent.spans.items()):
        same = [f for f in files if f.intent.token == intent.token]
        first = same[0] if same else Entry(intent, 0)
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
