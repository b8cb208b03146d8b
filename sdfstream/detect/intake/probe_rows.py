"""Probe messages into the engines that follow hosts and sessions: those of a slice as one, wherever that says the same.

It does where nothing in them is new: every name and session is known, no agent was restarted, each message is of one
host (of however many clocks), and no session has rows in two of the messages (else they are cut where an agent speaks
again). Then the hosts' part is done message by message, and the sessions' part once for all rows.
Everything else is taken one message at a time, so that what is said never depends on how messages were gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.detect.engines import Engines
from sdfstream.errors import FormatError
from sdfstream.numeric.group import Groups, group
from sdfstream.records import columns
from sdfstream.records.bustime import as_of_ns, dated
from sdfstream.records.fabric import host_of
from sdfstream.records.hostclock import edges_in, paths_only
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Message
from sdfstream.records.units import ABSENT_NS, Bools, Int64s

UNNUMBERED: Final = (1 << 32) - 1
"""Stands for the null of a column of 32 bits; an answer of this very number is one in four thousand million."""


@dataclass(frozen=True, slots=True)
class ProbeRows:
    """Rows of paths, of one or of several messages; every array is (rows,)."""

    batch: pa.RecordBatch
    slots: Int64s
    """Session; −1: refused."""
    seq: Int64s
    t1_ns: Int64s
    t4_ns: Int64s
    """`ABSENT_NS`: no answer came."""
    seq_rev: Int64s
    """The reflector's number of the answer; `UNNUMBERED`: no answer, or not known."""

    @classmethod
    def of(cls, batch: pa.RecordBatch, slots: Int64s) -> ProbeRows:
        """The columns of a batch.

        Raises
        ------
        FormatError
            When one is missing or of a wrong type.
        """
        seq = columns.values(batch, "seq").astype(np.int64)
        t1_ns, t4_ns = columns.values(batch, "t1_ns"), columns.instants(batch, "t4_ns")
        seq_rev = columns.filled(batch, "seq_rev", UNNUMBERED).astype(np.int64)
        return cls(batch, slots, seq, t1_ns, t4_ns, seq_rev)

    @property
    def answered(self) -> Bools:
        """Whether an answer came."""
        result: Bools = self.t4_ns != ABSENT_NS
        return result

    @property
    def ended_ns(self) -> Int64s:
        """An exchange ends with its answer, or for want of one with the probe's sending; the sender's clock."""
        return np.where(self.answered, self.t4_ns, self.t1_ns)


class Numbered(NamedTuple):
    """Rows of several messages, all of known sessions."""

    batch: pa.RecordBatch
    message: Int64s
    """(rows,) number of each row's message, ascending."""
    slots: Int64s
    """(rows,) session."""

    def between(self, low: int, high: int) -> Numbered:
        """The rows of messages `low` to `high`, the last not among them."""
        first, end = np.searchsorted(self.message, [low, high]).tolist()
        rows = self.batch.slice(first, end - first)
        return Numbered(rows, self.message[first:end] - low, self.slots[first:end])


@dataclass(frozen=True, slots=True)
class ClockedRows:
    """Rows by message, then by the clock they were stamped by: a host has one, or one in each NIC."""

    groups: Groups
    message: list[int]
    """(groups,) number of each group's message; likewise:"""
    clock: list[str]
    host: list[str]


@dataclass(frozen=True, slots=True)
class Together:
    """Messages that can be taken as one."""

    messages: Sequence[Message]
    rows: ProbeRows
    message: Int64s
    """(rows,) number of each row's message, ascending."""
    clocks: ClockedRows
    hosts: list[str | None]
    """Of each message the host whose rows it has; None: it has no rows."""


class ProbeIntake:
    """Takes probe messages.

    Parameters
    ----------
    engines : Engines
    sign_of_life : callable
        Told of every message before its rows.
    """

    def __init__(self, engines: Engines, sign_of_life: Callable[[Message], None]) -> None:
        self._counters, self._admit, self._sign_of_life = engines.counters, engines.admit, sign_of_life
        self._sessions, self._presence, self._bustime = engines.sessions, engines.presence, engines.bustime
        self._liveness, self._runs, self._marks = engines.liveness, engines.runs, engines.marks
        self._completeness, self._producers = engines.completeness, engines.producers
        self._cabling = engines.cabling

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages that entered the bus within one slice."""
        self._take(messages, self._numbered(messages))

    def _take(self, messages: Sequence[Message], numbered: Numbered | None) -> None:
        together = None if numbered is None else self._together(messages, numbered)
        if together is not None:
            self._take_together(together)
            return
        cuts = _where_agents_speak_again(messages)
        if cuts:
            for low, high in pairwise([0, *cuts, len(messages)]):
                piece = messages[low:high]
                self._take(piece, self._numbered(piece) if numbered is None else numbered.between(low, high))
            return
        for message in messages:
            try:
                self._take_one(message)
            except FormatError as error:
                self._counters.add("refused", error.reason)
            self._admit()

    def _take_one(self, message: Message) -> None:
        self._sign_of_life(message)
        at_ns = message.bus_at_ns
        batch = paths_only(message.body)
        slots = self._sessions.of_batch(batch, "dscp_sent", at_ns)
        self._sessions.note_planes(batch, slots)
        self._sessions.note_sizes(batch, slots)
        self._admit()
        rows = ProbeRows.of(batch, slots)
        self._note_producer(message, rows.t1_ns)
        known = slots >= 0
        self._counters.add("refused", "probe-row", int((~known).sum()))
        self._marks.take_rows(batch, slots, at_ns)
        self._take_floors(batch, slots, at_ns)
        seen_ns, hosts = self._bustime.of_exchanges(batch, at_ns)
        for host, until_ns in hosts:
            self._presence.take_report(host, until_ns, at_ns)
        self._watch_for_sleep(message, slots[known], rows.seq[known], rows.t1_ns[known])
        made_ns = as_of_ns(max((until_ns for _, until_ns in hosts), default=at_ns), at_ns)
        made, at = (np.full(int(known.sum()), ns, np.int64) for ns in (made_ns, at_ns))
        due = self._take_rows(rows, known, seen_ns, made, at)
        self._completeness.take(int(due.sum()), due.size, at_ns)

    def _take_floors(self, batch: pa.RecordBatch, slots: Int64s, at_ns: int) -> None:
        """Round trips show which NICs share a switch; where cabling is declared nobody needs to know."""
        if not self._cabling.topology.leaf_of:
            self._cabling.floors.take(batch, slots, at_ns)

    def _note_producer(self, message: Message, t1_ns: Int64s) -> None:
        newest_ns = int(t1_ns.max()) if t1_ns.size else None
        self._producers.take(message.key, message.boot_id, newest_ns, message.bus_at_ns)

    def _watch_for_sleep(self, message: Message, slots: Int64s, seq: Int64s, t1_ns: Int64s) -> None:
        if self._presence.may_have_slept(message.key) and self._liveness.sent_all_along(slots, seq, t1_ns):
            self._presence.note_awake(message.key)

    def _take_rows(self, rows: ProbeRows, known: Any, seen_ns: Int64s, made_ns: Int64s, at_ns: Int64s) -> Int64s:
        slots, seq, answered = rows.slots[known], rows.seq[known], rows.answered[known]
        due = self._liveness.take_rows(slots, seq, rows.t1_ns[known], answered, seen_ns[known], made_ns)
        self._runs.take_rows(slots, seq, answered, at_ns, made_ns - seen_ns[known])
        if at_ns.size:
            number = rows.seq_rev[known]
            self._runs.there.take(slots, seq, number, answered & (number != UNNUMBERED), int(at_ns[-1]))
        return due

    # -- several messages as one ----------------------------------------------------------------------------------

    def _numbered(self, messages: Sequence[Message]) -> Numbered | None:
        """The rows of several messages in one batch, if they are of known runs and sessions; changes nothing."""
        if len(messages) < 2 or not all(self._presence.knows_run(m.key, m.boot_id) for m in messages):
            return None
        batch, message = JOINS.joined(messages), np.arange(len(messages)).repeat([m.rows for m in messages])
        if batch is None:
            return None
        try:
            edges = edges_in(batch)
            if edges is not None:
                batch, message = paths_only(batch), message[~edges]
            slots = self._sessions.known_of_batch(batch, "dscp_sent")
        except FormatError:
            return None
        return None if slots is None else Numbered(batch, message, slots)

    def _together(self, messages: Sequence[Message], x: Numbered) -> Together | None:
        """The messages as one, if that may be; changes nothing."""
        if len(messages) < 2 or not _in_one_message_each(x.slots, x.message, self._sessions.count):
            return None
        try:
            clocks = _by_clock(x.batch, x.message)
            hosts = None if clocks is None else _one_host_each(clocks, len(messages))
            if clocks is None or hosts is None:
                return None
            return Together(messages, ProbeRows.of(x.batch, x.slots), x.message, clocks, hosts)
        except FormatError:
            return None

    def _take_together(self, x: Together) -> None:
        rows, message = x.rows, x.message
        at_ns = np.array([m.bus_at_ns for m in x.messages], np.int64)
        start = np.searchsorted(message, np.arange(len(x.messages) + 1))
        row_at_ns = at_ns[message]
        self._sessions.table["seen_at_ns"][rows.slots] = row_at_ns
        self._sessions.note_planes(rows.batch, rows.slots)
        self._sessions.note_sizes(rows.batch, rows.slots)
        self._marks.take_rows(rows.batch, rows.slots, int(at_ns[-1]))
        self._take_floors(rows.batch, rows.slots, int(at_ns[-1]))
        seen_ns = self._date(x, at_ns)
        made_ns = self._of_hosts(x, start, seen_ns)
        due = self._take_rows(rows, slice(None), seen_ns, made_ns[message], row_at_ns)
        sums = np.bincount(message, due, len(x.messages)).astype(np.int64).tolist()
        for m, sent in zip(x.messages, sums, strict=True):
            self._completeness.take(sent, m.rows, m.bus_at_ns)

    def _date(self, x: Together, at_ns: Int64s) -> Int64s:
        """(rows,) when each exchange ended, bus time."""
        ended_ns, groups = x.rows.ended_ns, x.clocks.groups
        newest_ns = np.maximum.reduceat(ended_ns[groups.order], groups.start) if groups.start.size else ended_ns
        offset_ns, undated = np.zeros(groups.start.size, np.int64), []
        for g, (i, clock, ns) in enumerate(zip(x.clocks.message, x.clocks.clock, newest_ns.tolist(), strict=True)):
            bus_at_ns = x.messages[i].bus_at_ns
            self._bustime.note(clock, ns, bus_at_ns)
            known_ns = self._bustime.offset_ns(clock, bus_at_ns)
            if known_ns is None:
                undated.append(g)
            else:
                offset_ns[g] = known_ns
        offsets_ns = np.empty(ended_ns.size, np.int64)
        offsets_ns[groups.order] = offset_ns.repeat(groups.size)
        seen_ns = dated(ended_ns, offsets_ns, at_ns[x.message])
        for g in undated:
            rows = groups.order[groups.start[g] : groups.start[g] + groups.size[g]]
            seen_ns[rows] = at_ns[x.clocks.message[g]]
        return seen_ns

    def _of_hosts(self, x: Together, start: Int64s, seen_ns: Int64s) -> Int64s:
        """What each message says of its host; (messages,) of when each speaks, bus time."""
        until_ns, newest_ns = dict(_newest(seen_ns, x, start)), dict(_newest(x.rows.t1_ns, x, start))
        for i, message in enumerate(x.messages):
            self._producers.take(message.key, message.boot_id, newest_ns.get(i), message.bus_at_ns)
        if _of_one_host_each(x):
            numbers = self._sessions.hosts.find_all([m.key for m in x.messages])
            reported_ns = np.array([until_ns.get(i, ABSENT_NS) for i in range(len(x.messages))], np.int64)
            at_ns = np.array([m.bus_at_ns for m in x.messages], np.int64)
            for i in np.flatnonzero(self._presence.take_together(numbers, reported_ns, at_ns)).tolist():
                self._watch_message(x, start, i)
        else:
            for i, (message, host) in enumerate(zip(x.messages, x.hosts, strict=True)):
                self._sign_of_life(message)
                if host is not None:
                    self._presence.take_report(host, until_ns[i], message.bus_at_ns)
                self._watch_message(x, start, i)
        made_ns = [as_of_ns(until_ns.get(i, m.bus_at_ns), m.bus_at_ns) for i, m in enumerate(x.messages)]
        return np.array(made_ns, np.int64)

    def _watch_message(self, x: Together, start: Int64s, i: int) -> None:
        mine = slice(start[i], start[i + 1])
        self._watch_for_sleep(x.messages[i], x.rows.slots[mine], x.rows.seq[mine], x.rows.t1_ns[mine])


def _where_agents_speak_again(messages: Sequence[Message]) -> list[int]:
    """Where to cut: of an agent that flushes late a slice holds two messages, and a session twice."""
    cuts, seen = [], set[str]()
    for i, message in enumerate(messages):
        if message.key in seen:
            cuts.append(i)
            seen = set()
        seen.add(message.key)
    return cuts


def _newest(instants_ns: Int64s, x: Together, start: Int64s) -> list[tuple[int, int]]:
    """Number of each message that has rows, and the newest of its rows' instants."""
    held = [i for i, host in enumerate(x.hosts) if host is not None]
    if not held:
        return []
    return list(zip(held, np.maximum.reduceat(instants_ns, start[held]).tolist(), strict=True))


def _of_one_host_each(x: Together) -> bool:
    """Whether no two messages are of one host, and the rows of each are of the host whose message it is."""
    if len({m.key for m in x.messages}) < len(x.messages):
        return False
    return all(host is None or host == m.key for m, host in zip(x.messages, x.hosts, strict=True))


def _in_one_message_each(slots: Int64s, message: Int64s, sessions: int) -> bool:
    """Whether no session has rows in two messages."""
    owner = np.zeros(sessions, np.int64)
    owner[slots] = message
    return bool((owner[slots] == message).all())


def _by_clock(batch: pa.RecordBatch, message: Int64s) -> ClockedRows | None:
    """The rows by message and clock; None where one's clock is unknown."""
    clock, clocks = columns.names(batch, "clock_src")
    src, nics = columns.names(batch, "src")
    if clock.size and int(clock.min()) < 0:
        return None
    groups = group(message * len(clocks) + clock)
    first = groups.order[groups.start]
    named = [clocks[c] for c in clock[first].tolist()]
    return ClockedRows(groups, message[first].tolist(), named, [host_of(nics[s]) for s in src[first].tolist()])


def _one_host_each(clocks: ClockedRows, messages: int) -> list[str | None] | None:
    """The host of each of so many messages, None for one without rows; None where a message is of two."""
    found: list[str | None] = [None] * messages
    for i, host in zip(clocks.message, clocks.host, strict=True):
        if found[i] not in (None, host):
            return None
        found[i] = host
    return found
