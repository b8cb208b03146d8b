"""Messages by the slice: what entered the bus within one slice of bus time is read, joined (`joins`) and taken as one.

Agents publish every 50 ms, so a message holds some tens of rows, and most of what a stage does costs as much for ten
rows as for a thousand. A slice depends on bus time alone, never on how the stream was cut into calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sdfstream.records.message import Body, Event, Message
from sdfstream.records.topics import LIVENESS, TOPICS
from sdfstream.records.units import NS_PER_MS, TICK_NS

SLICE_NS: Final = 50 * NS_PER_MS
"""Divides `TICK_NS`: no slice lies on both sides of a boundary at which stages tick."""
assert TICK_NS % SLICE_NS == 0


def start_of_slice(bus_at_ns: int) -> int:
    """The first instant of the slice in which `bus_at_ns` lies."""
    return bus_at_ns // SLICE_NS * SLICE_NS


def is_urgent(topic: str, body: Body) -> bool:
    """Whether a message must not wait for the end of its slice: an event such as a path that fell silent.

    What says how things stand (traced paths, most of all) and an agent's heartbeat, which reports no change, come by
    the hundred a second from 64 hosts; if each ended a slice, there would be none.
    """
    if not isinstance(body, Event) or topic in _NOT_URGENT:
        return False
    return topic != LIVENESS.name or bool(body.data.get("changes", True))


_NOT_URGENT: Final = frozenset(t.name for t in TOPICS.values() if not t.urgent)


def in_calls(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """The stream as stages are given it: what entered the bus within one slice, of any topic; what is urgent ends it.

    >>> import pyarrow as pa
    >>> batch = pa.record_batch({"n": [1]})
    >>> def at(ms, body=batch): return Message("a", "k", body, ms * 1_000_000, 0)
    >>> [len(call) for call in in_calls([at(1), at(49), at(50), at(55, Event("t", "s", "1", 0, {})), at(56)])]
    [2, 2, 1]
    """
    call: list[Message] = []
    for message in messages:
        if call and message.bus_at_ns // SLICE_NS != call[0].bus_at_ns // SLICE_NS:
            yield call
            call = []
        call.append(message)
        if is_urgent(message.topic, message.body):
            yield call
            call = []
    if call:
        yield call


def in_slices(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Runs of messages that follow each other, are of one topic, and entered the bus within one slice.

    >>> def at(ms, topic="a"): return Message(topic, "k", Event("t", "s", "1", 0, {}), ms * 1_000_000, 0)
    >>> [len(run) for run in in_slices([at(1), at(49), at(50), at(55, "b"), at(56)])]
    [2, 1, 1, 1]
    """
    first = 0
    for i in range(1, len(messages) + 1):
        if i == len(messages) or not _together(messages[first], messages[i]):
            yield messages[first:i]
            first = i


def _together(a: Message, b: Message) -> bool:
    return a.topic == b.topic and a.bus_at_ns // SLICE_NS == b.bus_at_ns // SLICE_NS
