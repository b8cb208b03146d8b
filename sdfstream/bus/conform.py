"""A foreign record batch brought to a topic's columns, or refused with the reason.

Readers take an absent nullable column as null and ignore a column they do not know (contract 4.2). Names may come
plainly or dictionary-encoded in any of Arrow's string layouts, since that changes no value; a number of another
type is refused, since a reader must not guess (the archive casts it: `archive.rows.cast_columns`). A float that is no
number, or a name that cannot be printed, counts as null (`column_bounds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from sdfstream.bus import column_bounds
from sdfstream.errors import FormatError
from sdfstream.records.topics import NAME, TOPICS


class _Layout(NamedTuple):
    """Facts on a topic's columns that are looked up for every message."""

    columns: pa.Schema
    required: tuple[int, ...]
    """Columns that may hold no null."""
    names: tuple[int, ...]
    bounded: tuple[tuple[int, pa.Field], ...]
    """Names, floats and instants: what has bounds narrower than its type."""
    row_bytes: int


def _layout(columns: pa.Schema) -> _Layout:
    widths = [4 if f.type == NAME else f.type.bit_width // 8 for f in columns]
    return _Layout(
        columns,
        tuple(i for i, f in enumerate(columns) if not f.nullable),
        tuple(i for i, f in enumerate(columns) if f.type == NAME),
        tuple((i, f) for i, f in enumerate(columns) if column_bounds.has_bounds(f)),
        sum(widths) + len(widths) // 8 + 1,  # a validity bit each
    )


_LAYOUTS: Final = {t.name: _layout(t.columns) for t in TOPICS.values() if t.columns is not None}
_PASSED: Final[dict[str, WeakValueDictionary[int, pa.RecordBatch]]] = {t: WeakValueDictionary() for t in _LAYOUTS}
_BY_COLUMNS: Final = {id(layout.columns): layout for layout in _LAYOUTS.values()}


def conforms(topic: str, batch: pa.RecordBatch) -> bool:
    """Whether `batch` has exactly the columns of bulk topic `topic` and no null where none may be.

    Called for every message inside a process, by its stage and by the bus: a batch that has passed is remembered while
    it lives.
    """
    passed = _PASSED[topic]
    if passed.get(id(batch)) is batch:
        return True
    layout = _LAYOUTS[topic]
    if not batch.schema.equals(layout.columns) or any(batch.column(i).null_count for i in layout.required):
        return False
    passed[id(batch)] = batch
    return True


def look_together(topic: str, batches: Sequence[pa.RecordBatch]) -> None:
    """Remember `batches` if all of them conform to bulk topic `topic`; else nothing, and each is to be looked at.

    A stage makes one batch a host: columns of all of them in one go cost what two batches cost.
    """
    layout, passed = _LAYOUTS[topic], _PASSED[topic]
    batches = [batch for batch in batches if passed.get(id(batch)) is not batch]
    if len(batches) < 2:
        return
    try:
        whole = pa.Table.from_batches(batches, layout.columns)
    except pa.ArrowInvalid:  # other columns
        return
    if not any(whole.column(i).null_count for i in layout.required):
        passed.update((id(batch), batch) for batch in batches)


def remember(topic: str, batch: pa.RecordBatch) -> None:
    """`batch` conforms to bulk topic `topic`, as a reader of foreign bytes found or by how it was made: `conforms` need
    not look.
    """
    _PASSED[topic][id(batch)] = batch


def bounded_numbers(topic: str) -> Iterator[tuple[int, pa.Field]]:
    """Index and field of the columns of bulk topic `topic` that have bounds narrower than their type, names apart."""
    return ((i, f) for i, f in _LAYOUTS[topic].bounded if f.type != NAME)


def size_bytes(topic: str, batch: pa.RecordBatch) -> int:
    """About the memory of `batch` of bulk topic `topic`: its rows' width, and its dictionaries.

    Arrow's own `nbytes` costs 100 µs where this costs ten, and buffer sizes would count a slice as its parent.
    """
    layout = _LAYOUTS[topic]
    names = sum(batch.column(i).dictionary.get_total_buffer_size() for i in layout.names)
    return int(batch.num_rows * layout.row_bytes + names)


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
    layout = _BY_COLUMNS.get(id(columns))
    if layout is not None and batch.schema.equals(columns) and _is_sound(layout, batch):
        return batch, 0  # as all of ours are
    arrays = [_column(field, batch) for field in columns]
    holes = [a for field, a in zip(columns, arrays, strict=True) if not field.nullable and a.null_count]
    if not holes:
        return pa.RecordBatch.from_arrays(arrays, schema=columns), 0
    whole = pa.array(np.logical_and.reduce([np.asarray(a.is_valid()) for a in holes]))
    readable = [a.filter(whole) for a in arrays]
    refused = batch.num_rows - len(readable[0])
    if refused == batch.num_rows:
        names = [f.name for f, a in zip(columns, arrays, strict=True) if not f.nullable and a.null_count]
        raise FormatError("null", f"no row is without a null in {', '.join(names)}")
    return pa.RecordBatch.from_arrays(readable, schema=columns), refused


def _is_sound(layout: _Layout, batch: pa.RecordBatch) -> bool:
    """Whether a batch of the topic's columns has no null where none may be, and nothing that `_column` would change."""
    columns = batch.columns  # each asking makes them anew
    if any(columns[i].null_count for i in layout.required):
        return False
    if any(columns[i].dictionary.null_count for i in layout.names):
        return False
    return all(column_bounds.within(field, columns[i]) is columns[i] for i, field in layout.bounded)


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
        return column_bounds.names(_names(field.name, column))
    if column.type == field.type:
        return column_bounds.within(field, column) if column_bounds.has_bounds(field) else column
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
