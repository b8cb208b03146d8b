"""Rows of any content: no exception, no number that is none, and the sound ones go on counting."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.records.message import Message, Output
from sdfstream.sync import SyncStage
from tests.checks import check_output
from tests.fixtures.sync_sim import START_NS, drive, mesh

_ODD = (0, 1, -1, 1 << 31, (1 << 62) - 1, 1 << 62, (1 << 63) - 1, -(1 << 63))
STAMPS = st.one_of(
    st.sampled_from(_ODD),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.integers(-(10**11), 10**11).map(lambda by: START_NS + by),
)
SHIFTS = st.one_of(st.integers(-(10**4), 10**4), st.integers(-(10**7), 10**7), st.integers(-(10**13), 10**13))
BASE = mesh(3, 2, "B", 8.0, 1).messages(3.0)


def put(m: Message, row: int, name: str, value: int) -> Message:
    batch = m.body
    at = batch.schema.get_field_index(name)
    values = batch.column(at).cast(pa.int64()).to_pylist()
    values[row % len(values)] = value
    column = pa.array(values, pa.int64()).cast(batch.schema.field(at).type)
    return replace(m, body=batch.set_column(at, batch.schema.field(at), column))


def assessed(stage: SyncStage, messages: list[Message]) -> list[tuple[int, Output]]:
    out = drive(stage, messages)
    for _, output in out:
        check_output(output)
    received = stage.counters.values["received", ""]
    assert received == sum(m.rows for m in messages)
    return out


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(BASE) - 1),
            st.integers(0, 50),
            st.sampled_from(("t1_ns", "t2_ns", "t3_ns", "t4_ns")),
            STAMPS,
        ),
        max_size=30,
    )
)
def test_any_stamps(changes: list[tuple[int, int, str, int]]) -> None:
    messages = list(BASE)
    for k, row, name, value in changes:
        messages[k] = put(messages[k], row, name, value)
    assessed(SyncStage(), messages)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from(("h00", "h01", "h02")), st.integers(0, 32), SHIFTS), max_size=4))
def test_any_clock_set_at_any_time(sets: list[tuple[str, int, int]]) -> None:
    """All stamps of a clock shift from some tenth of a second on, as if someone had set it."""
    messages = []
    for m in BASE:
        tick = (m.bus_at_ns - START_NS) // 100_000_000
        batch = m.body
        for names, stamps in (("clock_src", ("t1_ns", "t4_ns")), ("clock_dst", ("t2_ns", "t3_ns"))):
            clock = np.array(batch.column(names).to_pylist())
            by = np.zeros(m.rows, dtype=np.int64)
            for who, since, shift in sets:
                by += np.where((clock == who) & (tick >= since), shift, 0)
            for stamp in stamps:
                at = batch.schema.get_field_index(stamp)
                field = batch.schema.field(at)
                values = np.asarray(batch.column(at).cast(pa.int64())) + by
                batch = batch.set_column(at, field, pa.array(values).cast(field.type))
        messages.append(replace(m, body=batch))
    assessed(SyncStage(), messages)
