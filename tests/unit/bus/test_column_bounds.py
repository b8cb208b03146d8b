"""Floats that are none, and names that nobody can print, count as null."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sdfstream.bus.column_bounds import MOST, MOST_NAMES, MOST_NS, instants, names, numbers
from sdfstream.bus.conform import conform
from sdfstream.errors import FormatError
from sdfstream.records.topics import CLOCK, OWD
from tests.bus_samples import clock_batch

NS = pa.field("owd_ns", pa.float64(), metadata={"unit": "ns"})
OTHER = pa.field("x", pa.float64(), metadata={"unit": "1"})


def test_sound_floats_are_the_same_column() -> None:
    column = pa.array([0.0, -MOST_NS, None, 5e-324])
    assert numbers(NS, column) is column
    assert numbers(OTHER, pa.array([MOST, -MOST])).to_pylist() == [MOST, -MOST]


def test_no_number_is_null() -> None:
    wild = pa.array([1.0, float("nan"), None, float("inf"), -float("inf"), 2.0**63, 3.0])
    assert numbers(NS, wild).to_pylist() == [1.0, None, None, None, None, None, 3.0]
    assert numbers(OTHER, pa.array([1e300, 2.0**63])).to_pylist() == [None, 2.0**63]
    assert numbers(pa.field("p", pa.float32()), pa.array([float("inf"), 1.0], pa.float32())).to_pylist() == [None, 1.0]


def test_what_lies_behind_a_null_is_nobodys_value() -> None:
    column = pa.Array.from_buffers(
        pa.float64(), 2, [pa.py_buffer(b"\x02"), pa.array([float("nan"), 7.0]).buffers()[1]], 1
    )
    assert numbers(NS, column).to_pylist() == [None, 7.0]


def test_slices_too() -> None:
    column = pa.array([float("nan"), 1.0, None, float("inf"), 2.0])
    assert numbers(NS, column.slice(1, 3)).to_pylist() == [1.0, None, None]


def test_a_row_without_its_number_is_refused() -> None:
    batch = clock_batch(rows=3)
    at = batch.schema.get_field_index("offset_ns")
    wild = batch.set_column(at, batch.schema.field(at), pa.array([1.0, float("nan"), 2.0]))
    assert CLOCK.columns is not None
    found, refused = conform(CLOCK.columns, wild)
    assert (found.column("offset_ns").to_pylist(), refused) == ([1.0, 2.0], 1)
    none = batch.set_column(at, batch.schema.field(at), pa.array([float("inf")] * 3))
    with pytest.raises(FormatError, match="offset_ns"):
        conform(CLOCK.columns, none)


def test_an_optional_number_is_left_out() -> None:
    assert OWD.columns is not None
    rows = {
        f.name: ["a"] if pa.types.is_dictionary(f.type) else [float("inf")] if f.nullable else [1] for f in OWD.columns
    }
    batch = pa.RecordBatch.from_pydict({n: v for n, v in rows.items()}, schema=OWD.columns)
    found, refused = conform(OWD.columns, batch)
    assert refused == 0
    assert found.column("owd_p50_ns").to_pylist() == [None]


def test_names_that_nobody_can_print_are_null() -> None:
    good = pa.array(["h00/r0", "ä", "", None]).dictionary_encode()
    assert names(good) is good
    assert names(pa.array(["x" * 256]).dictionary_encode()).to_pylist() == ["x" * 256]
    wild = pa.array(["h00", "\x1b[2J", None, "a\x00b", "y" * 257, "h00", "\u202eb"]).dictionary_encode()
    found = names(wild)
    assert found.to_pylist() == ["h00", None, None, None, None, "h00", None]
    assert set(found.dictionary.to_pylist()) == {"h00", ""}, "nothing of them reaches a stage"
    assert names(wild.slice(5, 2)).to_pylist() == ["h00", None]


def test_a_row_without_a_printable_name_is_refused() -> None:
    batch = clock_batch(rows=2)
    spoilt = batch.set_column(0, batch.schema.field(0), pa.array(["h00", "\x1b]0;x\x07"]).dictionary_encode())
    assert CLOCK.columns is not None
    found, refused = conform(CLOCK.columns, spoilt)
    assert (found.column("clock").to_pylist(), refused) == (["h00"], 1)


def test_instants_of_no_clock_count_as_null() -> None:
    values = [0, 1 << 62, (1 << 62) + 1, -1, (1 << 63) - 1, -(1 << 63), None]
    assert instants(pa.array(values, pa.int64())).to_pylist() == [0, 1 << 62, None, None, None, None, None]
    sound = pa.array([0, None, 1 << 62], pa.int64())
    assert instants(sound) is sound
    empty = pa.array([], pa.int64())
    assert instants(empty) is empty


def test_more_names_than_any_message_has_are_refused() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), [str(i) for i in range(MOST_NAMES + 1)])
    with pytest.raises(FormatError, match="name"):
        names(column)
