"""What is joined is what Arrow joins, whoever asks and however it is cut; and it is forgotten in time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.records import joins
from sdfstream.records.joins import Joins
from sdfstream.records.message import Event, Message


def batch(names: list[str]) -> pa.RecordBatch:
    column = pa.array(names, pa.utf8()).dictionary_encode()
    return pa.record_batch({"name": column, "n": pa.array(np.arange(len(names)), pa.int64())})


def messages(*bodies: pa.RecordBatch | Event) -> list[Message]:
    return [Message("t", "k", body, 1, i) for i, body in enumerate(bodies)]


def rows(*batches: pa.RecordBatch | None) -> list[dict[str, object]]:
    return [row for batch in batches if batch is not None for row in batch.to_pylist()]


BODIES = st.lists(st.lists(st.sampled_from("abcd"), max_size=4).map(batch), min_size=1, max_size=12)
CUTS = st.lists(st.tuples(st.integers(0, 11), st.integers(1, 12)), max_size=6)


@given(BODIES, CUTS)
def test_pieces_hold_the_same_rows_as_what_was_joined_in_any_cut(bodies: list[pa.RecordBatch], cuts) -> None:
    some, sent = Joins(), messages(*bodies)
    for low, size in cuts:
        run = sent[low : low + size]
        if run:
            assert rows(some.joined(run)) == rows(*[m.body for m in run])
    pieces = some.pieces(bodies)
    some.forget(bodies)
    assert rows(*pieces) == rows(*bodies)
    assert rows(some.joined(sent)) == rows(*bodies)  # also once they were forgotten


def test_the_second_who_asks_is_given_the_same_batch() -> None:
    some, sent = Joins(), messages(batch(["a"]), batch(["b"]))
    first = some.joined(sent)
    assert some.joined(sent) is first
    assert [piece is first for piece in some.pieces([m.body for m in sent])] == [True]


def test_a_shorter_run_from_the_same_message_on_does_not_replace_a_longer_one() -> None:
    some, sent = Joins(), messages(batch(["a"]), batch(["b"]), batch(["c"]))
    whole = some.joined(sent)
    assert rows(some.joined(sent[:2])) == rows(*[m.body for m in sent[:2]])
    assert some.joined(sent) is whole


def test_a_part_of_what_was_joined_is_cut_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    some, sent = Joins(), messages(*(batch([name]) for name in "abcdef"))
    some.joined(sent)
    monkeypatch.setattr(joins, "_join", lambda bodies: bodies[0] if len(bodies) == 1 else pytest.fail("joined again"))
    for low, high in ((0, 2), (1, 3), (4, 6), (0, 6)):
        assert rows(some.joined(sent[low:high])) == rows(*[m.body for m in sent[low:high]])
    assert rows(*some.pieces([m.body for m in sent[2:5]])) == rows(*[m.body for m in sent[2:5]])
    assert len(some.pieces([m.body for m in sent[2:5]])) == 1


def test_what_a_producer_cut_from_one_batch_is_not_joined_again() -> None:
    some, whole = Joins(), batch(["a", "b", "c"])
    parts = [whole.slice(0, 1), whole.slice(1, 2)]
    some.remember(parts, whole)
    assert some.joined(messages(*parts)) is whole


def test_events_and_batches_of_two_schemas_are_not_joined() -> None:
    some, event = Joins(), Event("t", "s", "1", 0, {})
    assert some.joined(messages(batch(["a"]), event)) is None
    assert some.joined(messages(event)) is None
    assert some.joined(messages(batch(["a"]), pa.record_batch({"other": [1]}))) is None
    assert some.joined([]) is None


def test_what_cannot_be_joined_is_not_held_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    some = Joins()
    monkeypatch.setattr(joins, "RETAINED_ROWS", 100)
    with some.retained():
        for _ in range(100):
            assert some.joined(messages(batch(["a"]), pa.record_batch({"other": [1]}))) is None
    assert len(some._known) == 50


@pytest.mark.parametrize("forgotten", [False, True])
def test_little_is_remembered_unless_somebody_retains_it(forgotten: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    some, sent = Joins(), [messages(batch(["a"]), batch(["b"])) for _ in range(100)]
    monkeypatch.setattr(joins, "RETAINED_ROWS", 120)
    with some.retained():
        for run in sent:
            some.joined(run)
        assert len(some._known) == 60  # of two rows each
        assert some.pieces([m.body for m in sent[50]])[0] is some.joined(sent[50])
        if forgotten:
            some.forget(m.body for run in sent for m in run)
            some.joined(sent[0])
            assert len(some._known) == 1
    for run in sent:
        some.joined(run)
    assert len(some._known) == 8
