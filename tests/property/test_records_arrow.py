"""Arrow by its buffers says the same as Arrow's own conversions, wherever a column is cut."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.records import arrow

KINDS = st.sampled_from([pa.int8(), pa.uint8(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
VALUES = st.lists(st.one_of(st.none(), st.integers(0, 127)), max_size=40)


@settings(deadline=None)  # the first call imports pandas: what this module is about
@given(KINDS, VALUES, st.integers(0, 40), st.integers(0, 40))
def test_numbers_nulls_and_cuts(kind: pa.DataType, values: list[int | None], start: int, rows: int) -> None:
    column = arrow.numbers(values, kind)
    assert column.equals(pa.array(values, kind))
    piece = column.slice(min(start, len(values)), rows)
    expected = values[start : start + rows]
    assert arrow.nulls(piece).tolist() == [v is None for v in expected]
    filled = arrow.filled(piece, 99)
    assert filled.tolist() == [99 if v is None else v for v in expected]
    assert filled.dtype == kind.to_pandas_dtype()


@given(st.lists(st.one_of(st.none(), st.text(max_size=4)), max_size=20))
def test_names(values: list[str | None]) -> None:
    assert arrow.names(values).to_pylist() == values


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_doubles_as_floats(values: list[float]) -> None:
    array = np.array(values, dtype=np.float64)
    assert arrow.numbers(array, pa.float32()).to_pylist() == values


@given(KINDS, st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6), st.data())
def test_whole_numbers_fit_where_arrow_says_so(kind: pa.DataType, values: list[int], data: st.DataObject) -> None:
    present = np.array(data.draw(st.lists(st.booleans(), min_size=len(values), max_size=len(values))), np.bool_)
    theirs = pa.array(values, pa.int64(), mask=~present)
    try:
        expected = theirs.cast(kind)
    except pa.ArrowInvalid:
        with pytest.raises(OverflowError):
            arrow.numbers(np.array(values, np.int64), kind, present)
    else:
        assert arrow.numbers(np.array(values, np.int64), kind, present).equals(expected)


@pytest.mark.parametrize("values", [np.array([300]), np.array([-1]), [300], [-1, None]])
def test_what_does_not_fit_is_refused(values: object) -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        arrow.numbers(values, pa.uint8())


def test_big_endian_and_strided_input() -> None:
    assert arrow.numbers(np.array([1, 2], dtype=">u4"), pa.uint32()).to_pylist() == [1, 2]
    assert arrow.numbers(np.arange(6, dtype=np.uint8)[::2], pa.uint8()).to_pylist() == [0, 2, 4]


@given(st.lists(st.text(max_size=6), max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_strings_are_those_of_the_list(entries: list[str], low: int, size: int) -> None:
    array = arrow.text(entries)
    assert arrow.strings(array) == entries
    assert arrow.strings(array.slice(low, size)) == entries[low : low + size]
    assert arrow.strings(arrow.text([*entries, "x"]).slice(len(entries))) == ["x"]
    assert arrow.strings(pa.array([*entries, None], pa.utf8())) == [*entries, None]
    assert arrow.strings(pa.array(entries, pa.large_utf8())) == entries
