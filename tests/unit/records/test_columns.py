"""Record batches to numpy and back."""

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.topics import CLOCK, PORT
from sdfstream.records.units import ABSENT_NS


def test_names_survive_with_nulls_and_plain_utf8() -> None:
    codes, names = columns.names(pa.record_batch({"x": pa.array(["a", None, "a"])}), "x")
    assert codes.tolist() == [0, -1, 0]
    assert names == ["a"]
    assert columns.name_column(codes, names).to_pylist() == ["a", None, "a"]


def test_build_fills_nullable_columns_and_refuses_unknown_ones() -> None:
    batch = columns.build(
        PORT.columns,
        {"at_ns": [1], "host": ["h"], "nic": ["h/n"], "port": ["h/n:1"], "state": ["up"]},
    )
    assert batch.column("rx_bytes").null_count == 1
    with pytest.raises(ValueError, match="missing"):
        columns.build(CLOCK.columns, {"clock": ["a"]})


def test_instants_mark_nulls() -> None:
    batch = pa.record_batch({"t4_ns": pa.array([5, None], pa.int64())})
    assert columns.instants(batch, "t4_ns").tolist() == [5, ABSENT_NS]


def test_a_null_where_none_is_allowed_is_refused() -> None:
    with pytest.raises(FormatError, match="null"):
        columns.values(pa.record_batch({"a": pa.array([1, None])}), "a")
    assert columns.values(pa.record_batch({"a": pa.array([1, 2])}), "a").dtype == np.int64
