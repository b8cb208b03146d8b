"""Growing tables of numpy columns, and their form as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Table:
    """Columns of one length that grow by doubling; ``table["x"]`` is a view of the rows in use.

    Parameters
    ----------
    columns : mapping of name to (dtype, value of a new row)
    lanes : int
        Values per row of the columns named in `wide`; such a column has shape (lanes, rows).
    wide : tuple of str
    """

    def __init__(self, columns: Mapping[str, tuple[Any, Any]], lanes: int = 1, wide: tuple[str, ...] = ()) -> None:
        self.n = 0
        self._fills = {name: fill for name, (_, fill) in columns.items()}
        self._wide = frozenset(wide)
        self._data: dict[str, Array] = {
            name: np.full((lanes, 16) if name in self._wide else 16, fill, dtype=kind)
            for name, (kind, fill) in columns.items()
        }

    def __getitem__(self, name: str) -> Array:
        return self._data[name][..., : self.n]

    def __setitem__(self, name: str, value: Any) -> None:
        self._data[name][..., : self.n] = value

    def grow(self, rows: int) -> None:
        """Append `rows` fresh rows."""
        need = self.n + rows
        for name, array in self._data.items():
            if array.shape[-1] < need:
                room = np.full((*array.shape[:-1], max(need, 2 * array.shape[-1])), self._fills[name], array.dtype)
                room[..., : self.n] = array[..., : self.n]
                self._data[name] = room
        self.n = need

    def keep(self, mask: npt.NDArray[np.bool_]) -> None:
        """Drop the rows where `mask` is False; the others close up, in order."""
        kept = int(mask.sum())
        for name, array in self._data.items():
            fresh = np.full_like(array, self._fills[name])
            fresh[..., :kept] = array[..., : self.n][..., mask]
            self._data[name] = fresh
        self.n = kept

    def place(self, at: npt.NDArray[np.int64], rows: int) -> None:
        """Make room for `rows` rows in all and put old row j at ``at[j]``; the others are fresh."""
        old = {name: self[name].copy() for name in self._data}
        self.n = 0
        for name, array in self._data.items():
            self._data[name] = np.full((*array.shape[:-1], max(rows, 16)), self._fills[name], array.dtype)
        self.n = rows
        for name, array in old.items():
            self._data[name][..., at] = array

    def state(self) -> dict[str, Array]:
        """The rows in use, by column."""
        return {name: self[name] for name in self._data}

    def load(self, state: Mapping[str, Array]) -> None:
        """Take up what `state` gave."""
        self.n = 0
        self.grow(next(iter(state.values())).shape[-1])
        for name in self._data:
            self._data[name][..., : self.n] = state[name]


def pack(state: Mapping[str, Any]) -> bytes:
    """Nested dicts and lists of plain values and numpy arrays as bytes: a JSON head, then the arrays' own bytes."""
    blobs: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            blobs.append(np.ascontiguousarray(value).tobytes())
            return {"#": [value.dtype.str, list(value.shape), len(blobs[-1])]}
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(v) for v in value]
        return value

    head = json.dumps(plain(state), separators=(",", ":")).encode()
    return len(head).to_bytes(8, "little") + head + b"".join(blobs)


def unpack(data: bytes) -> dict[str, Any]:
    """Inverse of `pack`; arrays are fresh and writable."""
    size = int.from_bytes(data[:8], "little")
    at = 8 + size

    def rich(value: Any) -> Any:
        nonlocal at
        if isinstance(value, dict):
            if "#" in value:
                kind, shape, length = value["#"]
                array = np.frombuffer(data[at : at + length], dtype=np.dtype(kind)).reshape(shape).copy()
                at += length
                return array
            return {k: rich(v) for k, v in value.items()}
        if isinstance(value, list):
            return [rich(v) for v in value]
        return value

    result: dict[str, Any] = rich(json.loads(data[8 : 8 + size]))
    return result
