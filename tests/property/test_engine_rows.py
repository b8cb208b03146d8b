"""Laws: rows of an engine become the same batches whether its hosts are taken together or one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.probes.engine.rows import RowBatches
from tests.fixtures.engine_rows import FIRST, HOSTS, PATHS, any_rows


@given(st.lists(st.sampled_from(PATHS), max_size=40), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=150, deadline=None)
def test_all_hosts_at_once_or_each_alone(picked: list[int], seed: int, settled: bool) -> None:
    rows = any_rows(sorted(picked) if settled else picked, seed)
    before = rows.copy()
    host_of = np.searchsorted(FIRST, rows["path"], side="right") - 1
    expected = [(h.host, h.batch(rows[host_of == i])) for i, h in enumerate(HOSTS) if np.any(host_of == i)]
    found = RowBatches(HOSTS).batches(rows)
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, one), (_, other) in zip(expected, found, strict=True):
        one.validate(full=True)
        other.validate(full=True)
        assert one.equals(other)
        assert len(_message(other)) <= len(_message(one)) + 64 * one.num_columns  # a bitmap where none is needed
    assert rows.tobytes() == before.tobytes()


def _message(batch: pa.RecordBatch) -> bytes:
    """As it is published: a slice takes nothing of its neighbours along."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


@given(st.sampled_from(PATHS), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_batch_keeps_nothing_of_the_ring(path: int, seed: int) -> None:
    ring = any_rows([path], seed)
    [(_, batch)] = RowBatches(HOSTS).batches(ring[:1])
    before = batch.to_pylist()
    ring.view(np.uint8)[:] = 0xFF
    assert batch.to_pylist() == before


def test_a_host_s_dictionaries_hold_its_own_names_only() -> None:
    for host, batch in RowBatches(HOSTS).batches(any_rows(PATHS, 1)):
        assert {name.split("/")[0] for name in batch.column("src").dictionary.to_pylist()} == {host}
