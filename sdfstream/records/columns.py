"""Plain numpy views of a record batch's columns, and batches from numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.units import ABSENT_NS, Bools, Int32s, Int64s


def values(batch: pa.RecordBatch, name: str) -> npt.NDArray[Any]:
    """The column as a numpy array without a copy; the column must hold no null.

    Raises
    ------
    FormatError
        ``column-missing`` or ``null`` (a null where the contract allows none).
    """
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise FormatError("column-missing", name)
    column = batch.column(index)
    if column.null_count:
        raise FormatError("null", name)
    return _plain(column)


def filled(batch: pa.RecordBatch, name: str, fill: int | float) -> npt.NDArray[Any]:
    """The column with every null (or the whole column, when the batch lacks it) replaced by `fill`.

    Raises
    ------
    FormatError
        ``column-type`` (nulls in a column that is not numeric).
    """
    index = batch.schema.get_field_index(name)
    if index < 0:
        return np.full(batch.num_rows, fill)
    column = batch.column(index)
    if not column.null_count:
        return _plain(column)
    if not arrow.is_plain(column.type):
        raise FormatError("column-type", f"{name} is {column.type}, not numbers")
    return arrow.filled(column, fill)


def instants(batch: pa.RecordBatch, name: str) -> Int64s:
    """An int64 ns column; null becomes `ABSENT_NS`."""
    result: Int64s = filled(batch, name, ABSENT_NS).astype(np.int64, copy=False)
    return result


def names(batch: pa.RecordBatch, name: str) -> tuple[Int32s, list[str]]:
    """A name column as (codes, dictionary); a null name has code −1.

    Accepts plain utf8 too, since a foreign producer may not dictionary-encode.

    Raises
    ------
    FormatError
        ``column-missing`` or ``column-type``.
    """
    codes, dictionary = coded(batch, name)
    return codes, arrow.strings(dictionary)


def coded(batch: pa.RecordBatch, name: str) -> tuple[Int32s, pa.Array]:
    """Like `names`, with the dictionary as it came: for readers that know most dictionaries already."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise FormatError("column-missing", name)
    column = batch.column(index)
    if not isinstance(column, pa.DictionaryArray):
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise FormatError("column-type", f"{name} is {column.type}, not names")
        column = column.dictionary_encode()
    codes: Int32s = arrow.filled(column.indices, -1).astype(np.int32, copy=False)
    return codes, column.dictionary


def name_column(codes: npt.NDArray[np.integer[Any]], dictionary: Sequence[str] | pa.Array) -> pa.Array:
    """A name column from codes into `dictionary`; a negative code becomes null."""
    return arrow.coded(codes, dictionary)


def nullable(array: npt.NDArray[Any], present: Bools, kind: pa.DataType) -> pa.Array:
    """A column of `kind` that is null wherever `present` is False."""
    return arrow.numbers(array, kind, present)


def build(schema: pa.Schema, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """A record batch of `schema` from a mapping of column name to numpy array, Arrow array or list.

    A list of `str` for a name column is dictionary-encoded; an int64 array with `ABSENT_NS` for a nullable
    instant becomes null there, and so does a NaN in a nullable float column. Every column of the schema must be
    given, except nullable ones, which become null. Numpy arrays of the column's own type are not copied: do not
    write to them afterwards.
    """
    given = next((len(v) for v in columns.values()), 0)
    plan = _plan(schema)
    arrays = [_array(column, columns.get(column.name), given) for column in plan]
    if columns.keys() - {column.name for column in plan}:
        raise ValueError(f"columns not in the schema: {sorted(columns.keys() - set(schema.names))}")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class _Column(NamedTuple):
    """A field's facts, which Arrow makes anew at each look."""

    name: str
    kind: pa.DataType
    nullable: bool
    is_name: bool
    absent: int | None
    """What stands for null in a nullable column of instants."""


_PLANS: Final[dict[int, tuple[pa.Schema, tuple[_Column, ...]]]] = {}
_MOST_PLANS: Final = 64


def _plan(schema: pa.Schema) -> tuple[_Column, ...]:
    known = _PLANS.get(id(schema))
    if known is None:
        if len(_PLANS) >= _MOST_PLANS:
            _PLANS.clear()
        fields = (
            _Column(
                f.name,
                f.type,
                f.nullable,
                pa.types.is_dictionary(f.type),
                ABSENT_NS if f.nullable and f.type == pa.int64() else None,
            )
            for f in schema
        )
        known = _PLANS[id(schema)] = schema, tuple(fields)  # held, or its id might become another's
    return known[1]


def _plain(column: pa.Array) -> npt.NDArray[Any]:
    """A foreign producer's column may be of a type that is not plain numbers."""
    try:
        return arrow.plain(column)
    except KeyError:
        result: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return result


def _array(column: _Column, given: Any, rows: int) -> pa.Array:
    kind = column.kind
    if given is None:
        if not column.nullable:
            raise ValueError(f"column {column.name} is missing")
        return pa.nulls(rows, kind)
    if isinstance(given, pa.Array):
        return given if given.type == kind else given.cast(kind)
    if column.is_name:
        return arrow.names(given)
    array = np.asarray(given)
    if column.absent is not None and array.dtype == np.int64:
        return arrow.column(array, kind, array != column.absent)
    if column.nullable and array.dtype.kind == "f":
        return arrow.numbers(array, kind, ~np.isnan(array))
    return arrow.numbers(array, kind)
