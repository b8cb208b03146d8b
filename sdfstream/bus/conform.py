"""A foreign record batch brought to a topic's columns, or refused with the reason.

Readers take an absent nullable column as null and ignore a column they do not know (contract 4.2). Names may come
plainly or dictionary-encoded in any of Arrow's string layouts, since that changes no value; a number of another
type is refused, since a reader must not guess what was meant.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.errors import FormatError
from sdfstream.records.topics import NAME


def conforms(columns: pa.Schema, batch: pa.RecordBatch) -> bool:
    """Whether `batch` has exactly these columns and no null where none may be; costs a few microseconds."""
    return batch.schema.equals(columns) and not any(
        batch.column(i).null_count for i, field in enumerate(columns) if not field.nullable
    )


def conform(columns: pa.Schema, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """`batch` with exactly `columns`, and the number of rows refused for a null where none may be.

    Parameters
    ----------
    columns : pa.Schema
        A topic's columns.
    batch : pa.RecordBatch
        A batch that has been validated: every dictionary index lies inside its dictionary.

    Returns
    -------
    (pa.RecordBatch, int)
        Columns are taken over without a copy where their type is right.

    Raises
    ------
    FormatError
        ``column-missing``, ``column-type``, ``column-twice``; ``null`` when no row is left.
    """
    arrays = [_column(field, batch) for field in columns]
    holes = [a for field, a in zip(columns, arrays, strict=True) if not field.nullable and a.null_count]
    if not holes:
        return pa.RecordBatch.from_arrays(arrays, schema=columns), 0
    whole = reduce(pc.and_, (a.is_valid() for a in holes))
    kept = [a.filter(whole) for a in arrays]
    refused = batch.num_rows - len(kept[0])
    if refused == batch.num_rows:
        names = [f.name for f, a in zip(columns, arrays, strict=True) if not f.nullable and a.null_count]
        raise FormatError("null", f"no row is without a null in {', '.join(names)}")
    return pa.RecordBatch.from_arrays(kept, schema=columns), refused


def _column(field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    where = batch.schema.get_all_field_indices(field.name)
    if len(where) > 1:
        raise FormatError("column-twice", field.name)
    if not where:
        if not field.nullable:
            raise FormatError("column-missing", field.name)
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(where[0])
    if field.type == NAME:
        return _names(field.name, column)
    if column.type == field.type:
        return column
    if field.nullable and pa.types.is_null(column.type):
        return pa.nulls(batch.num_rows, field.type)
    raise FormatError("column-type", f"{field.name} is {column.type}, not {field.type}")


def _names(name: str, column: pa.Array) -> pa.Array:
    """A name column as dictionary<int32, utf8> whose dictionary holds no null."""
    kind = column.type
    try:
        if pa.types.is_dictionary(kind) and _is_text(kind.value_type):
            if column.dictionary.null_count:
                return column.dictionary_decode().cast(pa.utf8()).dictionary_encode()
            if kind.index_type == pa.int32() and kind.value_type == pa.utf8():
                # an "ordered" flag is not part of what a name is
                return column if kind == NAME else pa.DictionaryArray.from_arrays(column.indices, column.dictionary)
            indices = column.indices.cast(pa.int32())
            return pa.DictionaryArray.from_arrays(indices, column.dictionary.cast(pa.utf8()))
        if _is_text(kind):
            return column.cast(pa.utf8()).dictionary_encode()
        if pa.types.is_null(kind):
            return pa.nulls(len(column), NAME)
    except pa.ArrowException as error:
        raise FormatError("column-type", f"{name}: {error}") from error
    raise FormatError("column-type", f"{name} is {kind}, not names")


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
