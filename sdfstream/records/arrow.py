"""Arrow arrays straight from numpy memory, and back.

``pa.array`` of a numpy array or a list, ``pa.scalar`` and ``to_numpy`` import pandas wherever it is installed (chdb
brings it along): 0.8 s and 58 MB that an agent does not have to spend. Going by the buffers also costs less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records.units import Bools

_DTYPES: Final = {
    pa.from_numpy_dtype(np.dtype(name)).id: np.dtype(name)
    for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
}
"""The numpy type that stores each plain Arrow type, by that type's id: to hash a type itself, Arrow spells its name."""


def is_plain(kind: pa.DataType) -> bool:
    """Whether a column of `kind` is stored as numbers side by side."""
    return kind.id in _DTYPES


def column(values: npt.NDArray[Any], kind: pa.DataType, present: Bools | None = None) -> pa.Array:
    """`values` (n,), of the numpy type that `kind` stores, as an Arrow array; null where not `present`.

    The array shares the memory of `values`, which must not be written to afterwards.
    """
    assert values.dtype.itemsize * 8 == kind.bit_width, (values.dtype, kind)
    validity, nulls = None, 0
    if present is not None and not present.all():
        nulls = len(present) - int(np.count_nonzero(present))
        validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))], nulls)


def numbers(
    values: npt.NDArray[Any] | Sequence[float | None], kind: pa.DataType, present: Bools | None = None
) -> pa.Array:
    """`values` (n,) of any numeric type, or a list with None for null, as a column of `kind`.

    Raises
    ------
    pa.ArrowInvalid, OverflowError
        A value does not fit into `kind`.
    """
    array = np.asarray(values)
    wanted = _DTYPES[kind.id]
    if array.dtype.kind == "O":
        known = np.array([v is not None for v in array.tolist()], dtype=np.bool_)
        array = np.array([0 if v is None else v for v in array.tolist()], dtype=wanted)
        present = known if present is None else known & present
    elif array.dtype.kind in "iu" and array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == wanted or not array.size:
        return column(array.astype(wanted, copy=False), kind, present)
    if array.dtype.kind in "iu" and wanted.kind in "iu":  # here, since Arrow's cast loads all its functions: 8 MB
        return column(_fitted(array, wanted, present), kind, present)
    return column(array, pa.from_numpy_dtype(array.dtype), present).cast(kind)


def _fitted(whole: npt.NDArray[Any], wanted: np.dtype[Any], present: Bools | None) -> npt.NDArray[Any]:
    """Whole numbers as another type of these; OverflowError where one that is `present` does not fit."""
    counted, bounds = whole if present is None else whole[present], np.iinfo(wanted)
    if counted.size and not bounds.min <= int(counted.min()) <= int(counted.max()) <= bounds.max:
        raise OverflowError(f"{counted.min()} to {counted.max()} do not fit into {wanted}")
    return whole.astype(wanted)


def whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece; itself where it is."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def plain(array: pa.Array) -> npt.NDArray[Any]:
    """The values of a numeric column, without a copy and not to be written to; what stands where it is null is noise.

    Raises
    ------
    KeyError
        The column is not numeric.
    """
    wanted, data, rows = _DTYPES[array.type.id], array.buffers()[1], len(array)
    if not rows or data is None:
        return np.empty(rows, wanted)
    values: npt.NDArray[Any] = np.frombuffer(data, wanted, rows, array.offset * wanted.itemsize)
    values.flags.writeable = False
    return values


def nulls(array: pa.Array) -> Bools:
    """Where a column is null."""
    validity = array.buffers()[0] if array.null_count else None
    if validity is None:
        return np.zeros(len(array), dtype=np.bool_)
    whole, rest = divmod(array.offset, 8)  # a slice of a large batch costs what it is long, not where it lies
    octets = np.frombuffer(validity, np.uint8, (rest + len(array) + 7) // 8, whole)
    bits = np.unpackbits(octets, count=rest + len(array), bitorder="little")
    result: Bools = bits[rest:] == 0
    return result


def filled(array: pa.Array, fill: int | float) -> npt.NDArray[Any]:
    """The values of a numeric column with every null replaced by `fill`, in the column's own type.

    Raises
    ------
    ValueError, OverflowError, KeyError
        `fill` does not fit, or the column is not numeric.
    """
    if not array.null_count:
        return plain(array)
    if array.null_count == len(array):
        return np.full(len(array), fill, _DTYPES[array.type.id])
    values = plain(array).copy()
    values[nulls(array)] = fill
    return values


def text(entries: Sequence[str]) -> pa.Array:
    """`entries` as a utf8 array without nulls."""
    encoded = [e.encode() for e in entries]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.utf8(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))], 0
    )


def strings(array: pa.Array) -> list[str]:
    """The entries of a utf8 array."""
    result: list[str] = array.to_pylist()
    return result


def coded(codes: npt.NDArray[np.integer[Any]], entries: Sequence[str] | pa.Array) -> pa.DictionaryArray:
    """A name column from codes into `entries`; a negative code becomes null."""
    index = np.asarray(codes).astype(np.int32, copy=False)
    known = index >= 0
    indices = column(index, pa.int32()) if known.all() else column(np.maximum(index, 0), pa.int32(), known)
    return pa.DictionaryArray.from_arrays(indices, entries if isinstance(entries, pa.Array) else text(entries))


def names(values: Sequence[str | None]) -> pa.DictionaryArray:
    """Names one by one as a name column, its dictionary in order of first appearance; None becomes null."""
    index: dict[str, int] = {}
    codes = [-1 if v is None else index.setdefault(v, len(index)) for v in values]
    return coded(np.array(codes, dtype=np.int32), list(index))
