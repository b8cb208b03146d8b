"""However messages are cut into calls and whatever the limits, each goes out once, in order, with its own token."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive.batching import Batch, Coalescer, token
from sdfstream.archive.config import BatchLimits
from sdfstream.records.message import Event, Message
from sdfstream.records.units import NS_PER_MS

BATCHES = [pa.record_batch({"x": np.arange(rows)}) for rows in range(31)]
calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
TOPICS = ("sdf.a.a.v1", "sdf.b.b.v1")


def _message(topic: int, seq: int, rows: int) -> Message:
    body = Event("t", "s", "i", 0, {"x": [1]}) if rows == 0 else BATCHES[rows]
    return Message(TOPICS[topic], "k", body, 0, seq)


messages = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30)), max_size=40).map(
    lambda drawn: [_message(topic, seq, rows) for seq, (topic, rows) in enumerate(drawn)]
)
limits = st.builds(BatchLimits, rows=st.integers(1, 100), bytes=st.integers(1, 8000), age_ms=st.integers(0, 5))


def _drain(coalescer: Coalescer, now_ns: int, *, force: bool = False) -> list[Batch]:
    out = []
    while (batch := coalescer.take(now_ns, force=force)) is not None:
        out.append(batch)
    return out


@calm
@given(messages, limits, st.lists(st.integers(0, 40), max_size=6), st.lists(st.integers(0, 4), max_size=8))
def test_every_message_goes_out_once_and_in_order(given_, bounds, cuts, steps_ms) -> None:
    coalescer = Coalescer(bounds, "bus")
    edges = sorted({0, len(given_), *(c for c in cuts if c < len(given_))})
    now_ns, out = 0, []
    for i, (a, b) in enumerate(pairwise(edges)):
        coalescer.add(given_[a:b], now_ns)
        out += _drain(coalescer, now_ns)
        now_ns += (steps_ms[i % len(steps_ms)] if steps_ms else 0) * NS_PER_MS
    out += _drain(coalescer, now_ns, force=True)
    for topic in TOPICS:
        sent = [m for batch in out if batch.topic == topic for m in batch.messages]
        assert sent == [m for m in given_ if m.topic == topic]
    assert coalescer.bytes == 0
    assert coalescer.wait_ns(now_ns) is None
    for batch in out:
        assert batch.rows == sum(m.rows for m in batch.messages)
        assert len(batch.messages) == 1 or (batch.rows <= bounds.rows and batch.bytes <= bounds.bytes)
    assert len({batch.token for batch in out}) == len(out)


@calm
@given(messages, limits)
def test_nothing_waits_longer_than_its_age(given_, bounds) -> None:
    coalescer = Coalescer(bounds, "bus")
    coalescer.add(given_, 1000)
    wait_ns = coalescer.wait_ns(1000)
    assert (wait_ns is None) == (not given_)
    if wait_ns:
        before = coalescer.bytes
        assert coalescer.take(1000 + wait_ns - 1) is None
        assert coalescer.bytes == before
    _drain(coalescer, 1000 + bounds.age_ms * NS_PER_MS)
    assert coalescer.bytes == 0


numbers = st.lists(st.integers(0, 50), min_size=1, max_size=8)


@calm
@given(numbers, numbers, st.sampled_from(["run-1", "run-2"]), st.sampled_from(["run-1", "run-2"]))
def test_tokens_are_equal_only_for_the_same_messages_of_the_same_bus(a, b, bus_a, bus_b) -> None:
    one = token(bus_a, TOPICS[0], [_message(0, seq, 1) for seq in a])
    other = token(bus_b, TOPICS[0], [_message(0, seq, 1) for seq in b])
    assert (one == other) == (a == b and bus_a == bus_b)
