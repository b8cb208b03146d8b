"""Whether a batch is its topic's: known once it has passed, for that topic and that batch only."""

from __future__ import annotations

import gc

import pyarrow as pa

from sdfstream.bus.conform import conforms, look_together
from sdfstream.records.topics import CLOCK, OWD, TOPICS


def _nulls(topic: str, rows: int) -> pa.RecordBatch:
    columns = TOPICS[topic].columns
    assert columns is not None
    return pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in columns], schema=columns)


def test_what_passed_for_one_topic_has_not_passed_for_another() -> None:
    batch = _nulls(OWD.name, 0)
    assert conforms(OWD.name, batch) and conforms(OWD.name, batch)
    assert not conforms(CLOCK.name, batch)


def test_a_batch_that_passed_leaves_nothing_behind_for_the_next_at_its_address() -> None:
    refused = 0
    for _ in range(200):  # addresses are used again
        assert conforms(OWD.name, _nulls(OWD.name, 0))
        gc.collect(0)
        refused += not conforms(OWD.name, _nulls(OWD.name, 1))
    assert refused == 200


def test_batches_looked_at_together_are_told_as_one_by_one() -> None:
    sound = [_nulls(OWD.name, 0) for _ in range(3)]
    look_together(OWD.name, sound)
    assert all(conforms(OWD.name, batch) for batch in sound)
    for odd in (_nulls(OWD.name, 1), _nulls(CLOCK.name, 0)):
        batches = [_nulls(OWD.name, 0), odd]
        look_together(OWD.name, batches)
        assert [conforms(OWD.name, batch) for batch in batches] == [True, False]
