"""Laws: the engine's library makes the batches that numpy makes (`rows.RowBatches`), and owns what it makes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus import codec
from sdfstream.probes.engine import layouts
from sdfstream.probes.engine.layouts import Records
from sdfstream.probes.engine.row_batches_io import NativeRowBatches
from sdfstream.probes.engine.rows import EngineRows, RowBatches
from sdfstream.records.topics import PROBE
from tests.fixtures.engine_rows import HOSTS, PATHS, any_rows

Named = Sequence[tuple[str, pa.RecordBatch]]


def _octets(batch: pa.RecordBatch) -> bytes:
    return codec.encode_body(PROBE.name, batch)


def _same(found: Named, expected: Named) -> None:
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, ours), (_, reference) in zip(found, expected, strict=True):
        ours.validate(full=True)
        assert ours.schema.equals(reference.schema, check_metadata=True)
        assert ours.equals(reference)
        assert [c.null_count for c in ours.columns] == [c.null_count for c in reference.columns]


@given(st.lists(st.sampled_from(PATHS), max_size=200), st.integers(0, 2**32 - 1))
@settings(max_examples=150, deadline=None)
def test_the_library_makes_the_batches_of_the_reference(picked: list[int], seed: int) -> None:
    rows = any_rows(picked, seed)
    before = rows.tobytes()
    _same(NativeRowBatches(HOSTS).batches(rows), RowBatches(HOSTS).batches(rows))
    assert rows.tobytes() == before


@given(
    st.sampled_from(HOSTS),
    st.integers(1, 80),
    st.integers(0, 2**32 - 1),
    st.sampled_from([None, 0, layouts.ROW_ANSWERED, layouts.ROW_ANSWERED | layouts.ROW_CLASSED]),
)
@settings(max_examples=150, deadline=None)
def test_a_message_has_the_octets_of_the_reference(host: EngineRows, n: int, seed: int, flags: int | None) -> None:
    """Where all are answered or none is, too: a column without a null has no bitmap."""
    rows = any_rows([host.first + i % len(host.paths) for i in range(n)], seed)
    if flags is not None:
        rows["flags"] = flags
    [(_, ours)] = NativeRowBatches([host]).batches(rows)
    assert _octets(ours) == _octets(host.batch(rows))
    for column in ours.columns:
        validity = column.indices.buffers()[0] if pa.types.is_dictionary(column.type) else column.buffers()[0]
        assert (validity is None) == (column.null_count == 0)


@given(st.lists(st.sampled_from(PATHS), max_size=60), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_rows_of_an_ended_generation_are_left_out(picked: list[int], seed: int) -> None:
    rows = any_rows(picked, seed)
    rows["generation"] %= 3
    generation: npt.NDArray[np.uint16] = np.random.default_rng(seed).integers(0, 3, max(PATHS) + 1).astype(np.uint16)
    current: Records = rows[rows["generation"] == generation[rows["path"]]]
    _same(NativeRowBatches(HOSTS).batches(rows, generation), RowBatches(HOSTS).batches(current))


def test_without_rows_there_is_no_batch() -> None:
    assert NativeRowBatches(HOSTS).batches(any_rows([], 1)) == []
    assert NativeRowBatches([]).batches(any_rows([], 1)) == []


def test_rows_of_paths_that_no_host_has_are_left_out() -> None:
    rows = any_rows([PATHS[0], 9, PATHS[0], max(PATHS) + 1, layouts.NONE], 1)
    [(name, batch)] = NativeRowBatches(HOSTS).batches(rows)
    assert (name, batch.num_rows) == (HOSTS[0].host, 2)


def test_hosts_in_another_order_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        NativeRowBatches(HOSTS[::-1])


def test_a_batch_keeps_nothing_of_the_ring_and_outlives_the_table_and_its_neighbours() -> None:
    rows = any_rows(PATHS, 3)
    expected = [batch.to_pylist() for _, batch in RowBatches(HOSTS).batches(rows)]
    table = NativeRowBatches(HOSTS)
    found = [batch for _, batch in table.batches(rows)]
    again = [batch for _, batch in table.batches(rows)]
    rows.view(np.uint8)[:] = 0xFF
    del table
    gc.collect()
    columns = [batch.columns for batch in found]
    del found
    gc.collect()
    assert [batch.to_pylist() for batch in again] == expected
    kept = [batch[0] for batch in columns]  # one column, of which the others are gone
    del columns, again
    gc.collect()
    assert [column.to_pylist() for column in kept] == [[row["src"] for row in rows] for rows in expected]


def test_memory_comes_back_with_the_last_array_of_a_batch() -> None:
    """A batch holds its table until it is freed."""
    rows, table = any_rows(PATHS, 5), NativeRowBatches(HOSTS)
    held = ctypes.c_uint.from_address(table._table)  # the first field of `pe_row_table`
    found = [batch for _, batch in table.batches(rows)]
    assert held.value == 1 + len(HOSTS)
    column = found[0].column("plane")
    del found
    assert held.value == 2
    del column
    assert held.value == 1


def test_what_nobody_has_taken_is_freed_by_the_next_call() -> None:
    rows, table = any_rows(PATHS, 5), NativeRowBatches(HOSTS)
    held = ctypes.c_uint.from_address(table._table)
    for _ in range(3):
        assert table._library.pe_row_batches(
            table._table, rows.ctypes.data, len(rows), None, table._found, table._first
        ) == len(HOSTS)
        assert held.value == 1 + len(HOSTS)
    assert table.batches(rows[:0]) == []
    assert held.value == 1
