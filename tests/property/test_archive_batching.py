"""However messages are cut into calls, and whatever the limits, each goes out once, in order, with its own token."""

from __future__ import annotations

import doctest
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive import intent as intent_module
from sdfstream.archive.batching import Batch
from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.intent import Intent, Span, runs_of, token
from sdfstream.archive.queues import InsertQueues, PendingInsert
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Message
from sdfstream.records.position import PARTITION_BITS
from sdfstream.records.units import NS_PER_MS
from sdfstream.stats import Counters

BATCHES = [pa.record_batch({"x": np.arange(rows)}) for rows in range(31)]
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
TOPICS = ("sdf.a.a.v1", "sdf.b.b.v1")
HOUR_NS = 3600 * 10**9


def _message(topic: int, partition: int, offset: int, rows: int, at_ns: int = 0) -> Message:
    body = Event("t", "s", "i", 0, {"x": [1]}) if rows == 0 else BATCHES[rows]
    return Message(TOPICS[topic], "k", body, at_ns, partition << PARTITION_BITS | offset)


def _numbered(drawn: list[tuple[int, int, int, int]]) -> list[Message]:
    """Messages with rising offsets, with gaps, per topic and partition."""
    at: dict[tuple[int, int], int] = {}
    out = []
    for topic, partition, gap, rows in drawn:
        offset = at.get((topic, partition), 0) + gap
        at[topic, partition] = offset + 1
        out.append(_message(topic, partition, offset, rows))
    return out


messages = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 5]), st.integers(0, 30)), max_size=40
).map(_numbered)
limits = st.builds(
    BatchLimits,
    rows=st.integers(1, 60),
    bytes=st.integers(1, 8000),
    age_ms=st.integers(0, 5),
    most_rows=st.integers(1, 100),
    most_bytes=st.integers(1, 20_000),
    most_messages=st.integers(1, 20),
)


def _queues(bounds: BatchLimits) -> InsertQueues:
    return InsertQueues(ArchiveConfig("unused", "bus", bounds), {}, Counters("archive"))


def _read_up_to(given_: list[Message]) -> dict[tuple[str, int], int]:
    return {(m.topic, m.bus_seq >> PARTITION_BITS): (m.bus_seq & (1 << PARTITION_BITS) - 1) + 1 for m in given_}


def _drain(queues: InsertQueues, now_ns: int, *, force: bool = False) -> list[PendingInsert]:
    out: list[PendingInsert] = []
    while ready := queues.ready(now_ns, force=force):
        for insert in ready:
            queues.done(insert)
        out += ready
    return out


@calm
@given(messages, limits, st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 4), max_size=8))
def test_every_message_goes_out_once_and_ranges_join(given_, bounds, cuts, steps_ms) -> None:
    queues = _queues(bounds)
    edges = sorted({0, len(given_), *(c for c in cuts if c < len(given_))})
    now_ns, out = 0, []
    for i, (a, b) in enumerate(pairwise(edges)):
        queues.add(given_[a:b], _read_up_to(given_[:b]), now_ns)
        out += _drain(queues, now_ns)
        now_ns += (steps_ms[i % len(steps_ms)] if steps_ms else 0) * NS_PER_MS
    out += _drain(queues, now_ns, force=True)
    for topic in TOPICS:
        for partition in range(3):
            key = (topic, partition)
            sent = [m for e in out for m in e.messages if (m.topic, m.bus_seq >> PARTITION_BITS) == key]
            assert sent == [m for m in given_ if (m.topic, m.bus_seq >> PARTITION_BITS) == key]
            spans = [e.intent.spans[partition] for e in out if e.intent.topic == topic and partition in e.intent.spans]
            assert [s.start for s in spans] == [-1, *(s.end for s in spans)][: len(spans)]
    assert queues.bytes == 0
    assert queues.empty
    assert queues.wait_ns(now_ns) is None
    assert queues.positions() == _read_up_to(given_)
    for insert in out:
        assert insert.intent.rows == sum(m.rows for m in insert.messages)
        assert insert.intent.messages == len(insert.messages) <= bounds.most_messages
        assert len(insert.messages) == 1 or (
            insert.intent.rows <= bounds.most_rows and insert.bytes <= bounds.most_bytes
        )
        assert Intent.from_bytes(insert.intent.to_bytes()) == insert.intent
    assert len({e.intent.token for e in out}) == len(out)


@calm
@given(messages, limits)
def test_nothing_waits_longer_than_its_age(given_, bounds) -> None:
    queues = _queues(bounds)
    queues.add(given_, {}, 1000)
    wait_ns = queues.wait_ns(1000)
    assert (wait_ns is None) == (not given_)
    if wait_ns:
        assert queues.ready(1000 + wait_ns - 1) == []
    _drain(queues, 1000 + bounds.age_ms * NS_PER_MS)
    assert queues.bytes == 0


@calm
@given(messages, st.randoms(use_true_random=False))
def test_a_batch_does_not_depend_on_the_order_of_its_partitions(given_, random) -> None:
    """Partitions may be met in another order when a range is read again."""
    mine = [m for m in given_ if m.topic == TOPICS[0]]
    by_number: dict[int, list[Message]] = {}
    for m in mine:
        by_number.setdefault(m.bus_seq >> PARTITION_BITS, []).append(m)
    mixed = []
    while any(by_number.values()):
        mixed.append(by_number[random.choice([p for p, rest in by_number.items() if rest])].pop(0))
    found: list[Batch | PendingInsert] = []
    for order in (mine, mixed):
        queues = _queues(BatchLimits(most_rows=10**6))
        queues.add(order, _read_up_to(order), 0)
        found += _drain(queues, 0, force=True)
    if mine:
        one, other = found
        assert one.messages == other.messages
        assert one.intent == other.intent


def test_an_insert_spans_so_many_hours_at_most() -> None:
    queues = _queues(BatchLimits(most_hours=3))
    queues.add([_message(0, 0, i, 1, i * HOUR_NS) for i in range(8)], {}, 0)
    assert [len(e.messages) for e in _drain(queues, 0, force=True)] == [3, 3, 2]


numbers = st.lists(st.integers(0, 50), min_size=1, max_size=8).map(sorted)


@calm
@given(numbers, numbers, st.sampled_from(["run-1", "run-2"]), st.sampled_from(["run-1", "run-2"]), st.integers(0, 1))
def test_tokens_are_equal_only_for_the_same_messages_of_the_same_bus(a, b, bus_a, bus_b, at_ns) -> None:
    one = token(bus_a, TOPICS[0], [_message(0, 0, seq, 1) for seq in a])
    other = token(bus_b, TOPICS[0], [_message(0, 0, seq, 1, at_ns) for seq in b])
    assert (one == other) == (a == b and bus_a == bus_b and at_ns == 0)


@calm
@given(st.lists(st.integers(0, 60), max_size=30, unique=True).map(sorted))
def test_runs_name_their_offsets_and_no_others(offsets) -> None:
    span = Span(0, 61, runs_of(offsets))
    assert [o for o in range(61) if span.has(o)] == offsets


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(intent_module).failed == 0


good = Intent("sdf.a.a.v1", "t", 3, {0: Span(-1, 4, ((0, 2), (3, 4)))}).to_bytes()


@calm
@given(st.binary(max_size=80) | st.integers(0, len(good)).map(lambda n: good[:n]))
def test_any_note_is_an_intent_or_refused(data: bytes) -> None:
    try:
        found = Intent.from_bytes(data)
    except FormatError as error:
        assert error.reason == "intent"
    else:
        assert Intent.from_bytes(found.to_bytes()) == found


@pytest.mark.parametrize(
    "said", [b'{"v":2}', b"[]", b'{"v":1,"topic":"a","token":"t","rows":1,"spans":{"0":[0,5,[3,2]]}}', b"\xff", b"null"]
)
def test_what_is_no_intent_is_refused(said: bytes) -> None:
    with pytest.raises(FormatError, match="intent"):
        Intent.from_bytes(said)
