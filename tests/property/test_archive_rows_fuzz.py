"""Whatever arrives, every row is either in the table or among the rejects, and nothing raises."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive.events import event_rows
from sdfstream.archive.insert_io import build_rows
from sdfstream.archive.rows import bulk_rows, reject_rows
from sdfstream.records.message import Event
from sdfstream.records.topics import TOPICS
from tests.fixtures.archive import BULK, EVENTS, bulk, event, message

KINDS = (pa.int64(), pa.uint8(), pa.float32(), pa.utf8(), pa.large_utf8(), pa.null(), pa.list_(pa.int8()), pa.bool_())


@st.composite
def odd_batches(draw):
    """A topic's batch with columns dropped, of other types, holding nulls, out of order, or unknown to us."""
    topic = draw(st.sampled_from(BULK))
    rows = draw(st.integers(0, 6))
    batch = bulk(topic, rows, np.random.default_rng(draw(st.integers(0, 9))))
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in draw(st.lists(st.sampled_from(batch.schema.names), max_size=3)):
        change = draw(st.sampled_from(["drop", "type", "nulls", "text"]))
        if change == "drop":
            columns.pop(name, None)
        elif change == "type":
            columns[name] = pa.nulls(rows, draw(st.sampled_from(KINDS)))
        elif change == "text":
            columns[name] = pa.array(draw(st.lists(st.text(max_size=3), min_size=rows, max_size=rows)), pa.utf8())
        elif name in columns:
            columns[name] = columns[name].take(pa.array([None] * rows, pa.int32()))
    if draw(st.booleans()):
        columns["unknown to us"] = pa.nulls(rows)
    names = draw(st.permutations(list(columns)))
    return topic, pa.record_batch({n: columns[n] for n in names}) if names else batch


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(odd_batches(), min_size=1, max_size=4))
def test_rows_are_accepted_or_refused(drawn) -> None:
    topic = drawn[0][0]
    sent = [message(topic, batch, seq) for seq, (_, batch) in enumerate(drawn)]
    out = bulk_rows(topic, sent, "run")
    assert out.table.num_rows + sum(r.rows for r in out.rejects) == sum(m.rows for m in sent)
    assert reject_rows(out.rejects, "run").num_rows == len(out.rejects)


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(EVENTS)), st.data())
def test_events_are_accepted_or_refused(name: str, data) -> None:
    topic, good = TOPICS[name], EVENTS[name]
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(good)), json, max_size=3))
    odd = event(topic, good | changes, 1)
    strange = data.draw(
        st.builds(Event, st.text(max_size=3), st.text(max_size=3), st.text(), st.integers(), st.just(good))
    )
    sent = [event(topic, good), odd, replace(odd, body=strange, bus_seq=2)]
    out = event_rows(topic, sent, "run")
    assert out.table.num_rows + len(out.rejects) == 3
    assert out.table.num_rows >= 1
    assert reject_rows(out.rejects, "run").num_rows == len(out.rejects)


def test_a_defect_takes_only_its_own_message() -> None:
    topic = BULK[2]
    sent = [message(topic, bulk(topic, 3, np.random.default_rng(seq)), seq) for seq in range(3)]
    sent[1] = replace(sent[1], bus_at_ns=2**70)
    out = build_rows(topic, sent, "run")
    assert out.table.column("bus_seq").to_pylist() == [0] * 3 + [2] * 3
    assert [(r.reason, r.rows) for r in out.rejects] == [("defect", 3)]
