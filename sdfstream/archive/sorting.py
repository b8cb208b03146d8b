"""Delays in the order of their table's sorting key, before they are inserted. Pure.

The engine sorts what comes unsorted by seven keys, five of them names, and its view by the second looks each row's path
up in memory that no cache holds. Here a row's path is one whole number, and columns of one value are not touched: that
costs half of what it saves (docs/performance.md). Probe rows have twice the columns, so there it saves nothing. Rows
that are not in order here are sorted by the engine as ever: nothing depends on it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import arrow
from sdfstream.records.topics import OWD, Topic
from sdfstream.records.units import Int64s

FEWEST: Final = 4096
"""Rows of an insert from which on sorting pays: fewer are cheap to the engine as well."""
_KEYS: Final = {
    OWD.name: (("src", "dst", "transport", "path", "dscp", "dir"), "at_ns"),
}
"""By topic: what says the path, and the time that follows it in its table's sorting key."""


def order_of(topic: Topic, rows: pa.RecordBatch) -> Int64s | None:
    """Which row comes where in the order of the topic's table; None where rows stay as they are."""
    if topic.name not in _KEYS or rows.num_rows < FEWEST:
        return None
    names, at = _KEYS[topic.name]
    bits = rows.num_rows.bit_length()
    path = _paths(rows, names, 63 - bits)
    if path is None:
        return None
    packed = path << bits | np.arange(rows.num_rows)
    packed.sort()
    order = packed & ((1 << bits) - 1)
    _by_time(order, packed >> bits, arrow.plain(rows.column(at)).take(order))
    return None if (order[1:] > order[:-1]).all() else order


def taken(rows: pa.RecordBatch, order: Int64s) -> pa.RecordBatch:
    """`rows` in `order`."""
    return pa.RecordBatch.from_arrays([_take(column, order) for column in rows.columns], schema=rows.schema)


def _paths(rows: pa.RecordBatch, names: tuple[str, ...], most_bits: int) -> Int64s | None:
    """Each row's path as a number that sorts as its columns do; None where it takes more than `most_bits`."""
    path, values = np.zeros(rows.num_rows, np.int64), 1
    for name in names:
        column, kinds = _ranks(rows.column(name))
        values *= kinds
        if values > 1 << most_bits:
            return None
        if kinds > 1:
            path *= kinds
            path += column
    return path


def _ranks(column: pa.Array) -> tuple[npt.NDArray[Any], int]:
    """Whole numbers from 0 that sort as the column's values do, and how many there may be."""
    if not pa.types.is_dictionary(column.type):
        numbers = arrow.plain(column).astype(np.int64)
        lowest = int(numbers.min())
        return numbers - lowest, int(numbers.max()) - lowest + 1
    entries = [entry or "" for entry in column.dictionary.to_pylist()]
    rank = {name: i for i, name in enumerate(sorted(set(entries)))}
    of_entry = np.array([rank[name] for name in entries], np.int64)
    return of_entry.take(arrow.plain(column.indices)), len(rank)


def _by_time(order: Int64s, path: Int64s, at_ns: Int64s) -> None:
    """Sort by time, in place, the rows of those paths whose rows did not come in its order: they are few."""
    same = path[1:] == path[:-1]
    back = same & (at_ns[1:] < at_ns[:-1])
    if not back.any():
        return
    run = np.concatenate(([0], np.cumsum(~same)))
    mixed = np.zeros(int(run[-1]) + 1, dtype=np.bool_)
    mixed[run[1:][back]] = True
    rows = np.flatnonzero(mixed[run])
    order[rows] = order[rows][np.lexsort((at_ns[rows], run[rows]))]


def _take(column: pa.Array, order: Int64s) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(_take(column.indices, order), column.dictionary)
    if not arrow.is_plain(column.type):
        return column.take(arrow.column(order, pa.int64()))
    values = arrow.plain(column)
    known = ~arrow.nulls(column) if column.null_count else None
    if known is None and (values == values[0]).all():
        return column
    return arrow.column(values.take(order), column.type, None if known is None else known.take(order))
