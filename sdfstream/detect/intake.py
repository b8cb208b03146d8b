"""Record batches as their topic declares them, before any engine sees them.

A batch that lacks a required column, or has one of another type, is refused whole; a row with a null where none is
allowed is refused alone and counted. Columns nobody declared are ignored, absent nullable ones are null.
"""

from __future__ import annotations

import functools

import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.errors import FormatError
from sdfstream.records.topics import NAME
from sdfstream.stats import Counters


def conform(batch: pa.RecordBatch, columns: pa.Schema, counters: Counters) -> pa.RecordBatch:
    """The rows of `batch` that can be read, with every declared column that is there of its declared type.

    Raises
    ------
    FormatError
        ``column-missing`` or ``column-type``.
    """
    if not batch.schema.equals(columns):
        batch = _typed(batch, columns)
    required = _required(columns) if batch.num_columns == len(columns) else None
    if required is None:
        required = tuple(batch.schema.get_field_index(f.name) for f in columns if not f.nullable)
    holed = [c for i in required if (c := batch.column(i)).null_count]
    if not holed:
        return batch
    whole = functools.reduce(pc.and_, [pc.is_valid(c) for c in holed])
    passed = batch.filter(whole)
    counters.add("refused", "null", batch.num_rows - passed.num_rows)
    return passed


@functools.lru_cache(maxsize=64)
def _required(columns: pa.Schema) -> tuple[int, ...]:
    """Positions of the columns that may hold no null."""
    return tuple(i for i, f in enumerate(columns) if not f.nullable)


def _typed(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    arrays, fields = [], []
    for field in columns:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            if not field.nullable:
                raise FormatError("column-missing", field.name)
            continue
        arrays.append(_as(batch.column(index), field))
        fields.append(field)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _as(column: pa.Array, field: pa.Field) -> pa.Array:
    """The column in the field's type, if that loses nothing: names from plain text, numbers from other numbers."""
    have, want = column.type, field.type
    if have == want:
        return column
    text = pa.types.is_string(have) or pa.types.is_large_string(have)
    try:
        if want == NAME and text:
            return column.cast(pa.utf8()).dictionary_encode()
        number = pa.types.is_integer(have) or pa.types.is_floating(have) or pa.types.is_null(have)
        if number or (want == NAME and pa.types.is_dictionary(have)):
            return column.cast(want)
    except pa.ArrowException as error:
        raise FormatError("column-type", f"{field.name}: {error}") from error
    raise FormatError("column-type", f"{field.name} is {have}, not {want}")
