"""What foreign columns may hold: printable names, floats that are numbers, instants. Anything else counts as null.

A null in a column that must not hold any refuses its row (`conform`); elsewhere it says nothing. Names go into
findings, file names and terminals, and a stage that repeats one must not write what nobody takes from it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records import arrow
from sdfstream.records.schema import LATEST_NS
from sdfstream.records.topics import NAME

MOST_NAME: Final = 256
"""Characters of a name."""
MOST_NS: Final = 2.0**62
"""Of a duration in ns (146 years): as an integer it fits a stamp, and so do sums of two."""
MOST: Final = 2.0**124
"""Of any other unit: its fourth power is still finite."""
_LATEST: Final = np.uint64(LATEST_NS)


MOST_NAMES: Final = 131_072
"""Names in one dictionary."""


def has_bounds(field: pa.Field) -> bool:
    """Whether a column has bounds that are narrower than its type."""
    return field.type == NAME or pa.types.is_floating(field.type) or _is_instant(field)


def bound_of(field: pa.Field) -> tuple[np.dtype[Any], float]:
    """The numpy type in which a column of instants or floats is compared, and the most it may hold.

    Floats are bounded either way; instants are compared without a sign, so that what is negative is large.
    """
    if field.type == pa.int64():
        return np.dtype(np.uint64), LATEST_NS
    return np.dtype(np.float32 if field.type == pa.float32() else np.float64), _most(field)


def _most(field: pa.Field) -> float:
    return MOST_NS if (field.metadata or {}).get(b"unit") == b"ns" else MOST


def within(field: pa.Field, column: pa.Array) -> pa.Array:
    """`column`, of the type of `field`, with null in place of what is out of bounds; itself where nothing is.

    Raises
    ------
    FormatError
        ``name``: more names than any message has.
    """
    if field.type == NAME:
        return names(column)
    return instants(column) if field.type == pa.int64() else numbers(field, column)


def instants(column: pa.Array) -> pa.Array:
    """An int64 column with null in place of instants outside 1970 to 2116, of which any two can be added."""
    values = arrow.plain(column)
    unsigned = values.view(np.uint64)  # where what is negative is large
    if not len(values) or unsigned.max() <= _LATEST:
        return column
    sound = unsigned <= _LATEST
    if column.null_count:
        present = ~arrow.nulls(column)
        if sound[present].all():
            return column
        sound &= present
    return arrow.column(np.where(sound, values, 0), column.type, sound)


def _is_instant(field: pa.Field) -> bool:
    return bool(field.type == pa.int64() and (field.metadata or {}).get(b"unit", b"").startswith(b"ns since epoch"))


def numbers(field: pa.Field, column: pa.Array) -> pa.Array:
    """A float column with null in place of NaN, infinities and values beyond `MOST_NS` or `MOST`.

    The column itself, without a copy, where there are none: two microseconds for a column of some hundred rows.
    """
    values = arrow.plain(column)
    sound = np.abs(values) <= _most(field)
    if sound.all():
        return column
    if column.null_count:  # what stands in the place of a null is nobody's value
        present = ~arrow.nulls(column)
        if sound[present].all():
            return column
        sound &= present
    return arrow.column(np.where(sound, values, 0).astype(values.dtype), column.type, sound)


def names(column: pa.DictionaryArray) -> pa.DictionaryArray:
    """A name column (dictionary<int32, utf8>) with null in place of names with control characters, or too long.

    The column itself where there are none; the whole dictionary is looked at in one go.
    """
    dictionary = column.dictionary
    if len(dictionary) > MOST_NAMES:
        raise FormatError("name", f"{len(dictionary)} names in one message, at most {MOST_NAMES}")
    data = dictionary.buffers()[2]
    if data is None or not len(dictionary):
        return column
    ends = np.frombuffer(dictionary.buffers()[1], np.int32, len(dictionary) + 1, 4 * dictionary.offset)
    first, last = int(ends[0]), int(ends[-1])
    text = memoryview(data)[first:last].tobytes().decode()
    if text.isprintable() and (last - first <= MOST_NAME or int(np.diff(ends).max()) <= MOST_NAME):
        return column
    listed = arrow.strings(dictionary)
    sound = np.array([len(name) <= MOST_NAME and name.isprintable() for name in listed], np.bool_)
    if sound.all():
        return column
    codes = arrow.filled(column.indices, -1)
    rest = [name if ok else "" for name, ok in zip(listed, sound.tolist(), strict=True)]
    return arrow.coded(np.where((codes >= 0) & sound[codes], codes, -1), rest)
