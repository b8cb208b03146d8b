"""Delays come to the engine in their table's order: every row once, with all that belongs to it."""

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.archive import sorting
from sdfstream.archive.rows import bulk_rows
from sdfstream.records.topics import OWD, PROBE
from tests.fixtures.archive import bulk, message

KEY = ("src", "dst", "transport", "path", "dscp", "dir", "at")


def _with(batch: pa.RecordBatch, **columns: np.ndarray) -> pa.RecordBatch:
    for name, values in columns.items():
        field = batch.schema.field(name)
        batch = batch.set_column(batch.schema.get_field_index(name), field, pa.array(values, field.type))
    return batch


def _delays(rows: int, rng: np.random.Generator) -> pa.RecordBatch:
    return _with(bulk(OWD, rows, rng), path=rng.integers(49_152, 49_155, rows))


def _messages(rng: np.random.Generator, rows: int = 700, count: int = 9) -> list:
    """Several windows of few paths, so that paths return, some of them with an earlier window."""
    out = []
    for seq in range(count):
        at_ns = rng.integers(0, 50, rows) * 100_000_000 + seq
        out.append(message(OWD, _with(_delays(rows, rng), at_ns=at_ns), seq))
    return out


def test_many_delays_come_in_their_tables_order_with_all_that_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = _messages(np.random.default_rng(3))
    assert sum(m.rows for m in messages) >= sorting.FEWEST
    found = bulk_rows(OWD, messages, "run").table
    monkeypatch.setattr(sorting, "FEWEST", 1 << 62)
    as_they_came = bulk_rows(OWD, messages, "run").table
    assert found.schema == as_they_came.schema
    expected = sorted(as_they_came.to_pylist(), key=lambda row: tuple(row[k] for k in KEY))  # stable, as ours is
    assert repr(found.to_pylist()) == repr(expected)
    assert repr(as_they_came.to_pylist()) != repr(expected)


def test_rows_in_order_few_rows_and_other_topics_stay_as_they_came() -> None:
    rng = np.random.default_rng(4)
    batch = _delays(sorting.FEWEST, rng)
    order = sorting.order_of(OWD, batch)
    assert order is not None
    assert sorted(order.tolist()) == list(range(batch.num_rows))
    assert sorting.order_of(OWD, sorting.taken(batch, order)) is None
    assert sorting.order_of(OWD, batch.slice(1)) is None
    assert sorting.order_of(PROBE, bulk(PROBE, sorting.FEWEST, rng)) is None


def test_paths_too_many_for_a_number_are_left_to_the_engine() -> None:
    rng = np.random.default_rng(5)
    batch = _delays(sorting.FEWEST, rng)
    names = pa.array([f"h{i}" for i in range(sorting.FEWEST)]).dictionary_encode()
    for name in ("src", "dst"):
        batch = batch.set_column(batch.schema.get_field_index(name), batch.schema.field(name), names)
    path = rng.integers(0, 1 << 32, batch.num_rows, dtype=np.uint32)
    path[:2] = 0, (1 << 32) - 1
    assert sorting.order_of(OWD, _with(batch, path=path)) is None


def test_entries_of_a_dictionary_may_be_twice_there_and_in_any_order() -> None:
    rng = np.random.default_rng(6)
    batch = _delays(sorting.FEWEST, rng)
    entries = pa.array(["b", "a", "b", "\u00e9", "", "z"])
    codes = rng.integers(0, len(entries), batch.num_rows).astype(np.int32)
    names = pa.DictionaryArray.from_arrays(pa.array(codes), entries)
    batch = batch.set_column(batch.schema.get_field_index("src"), batch.schema.field("src"), names)
    order = sorting.order_of(OWD, batch)
    assert order is not None
    src = sorting.taken(batch, order)["src"].to_pylist()
    assert src == sorted(src)
