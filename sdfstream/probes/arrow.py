"""Arrow arrays straight from numpy memory.

``pa.array`` of a numpy array or a list imports pandas wherever it is installed (chdb brings it along): 0.8 s and
58 MB that an agent does not have to spend. Building from buffers also costs less per column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records.units import Bools


def column(values: npt.NDArray[Any], kind: pa.DataType, present: Bools | None = None) -> pa.Array:
    """`values` (n,), of the numpy type that `kind` stores, as an Arrow array; null where not `present`."""
    assert values.dtype.itemsize * 8 == kind.bit_width, (values.dtype, kind)
    validity, nulls = None, 0
    if present is not None:
        nulls = len(present) - int(np.count_nonzero(present))
        if nulls:
            validity = pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))], nulls)


def text(entries: Sequence[str]) -> pa.Array:
    """`entries` as a utf8 array without nulls."""
    encoded = [e.encode() for e in entries]
    offsets = np.zeros(len(encoded) + 1, dtype=np.int32)
    np.cumsum([len(e) for e in encoded], out=offsets[1:])
    return pa.Array.from_buffers(
        pa.utf8(), len(encoded), [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))], 0
    )


class Names:
    """A dictionary column whose dictionary is built once: code to name, None for null."""

    def __init__(self, names: Sequence[str | None]) -> None:
        entries = sorted({n for n in names if n is not None})
        place = {name: i for i, name in enumerate(entries)}
        self._code = np.array([-1 if n is None else place[n] for n in names], dtype=np.int32)
        self._entries = text(entries)

    def column(self, code: npt.NDArray[np.integer[Any]]) -> pa.Array:
        """The names of `code` (n,) as dictionary<int32, utf8>."""
        index = self._code[code]
        known = index >= 0
        return pa.DictionaryArray.from_arrays(column(np.maximum(index, 0), pa.int32(), known), self._entries)
