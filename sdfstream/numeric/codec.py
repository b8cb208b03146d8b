"""Plain values and arrays to bytes and back: the snapshot format of stages.

Eight bytes of length, a JSON head, then the arrays' own bytes; the head names each array by type, shape and position.
So a snapshot is deterministic, and reading one runs no foreign code (unlike pickle).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sdfstream.errors import FormatError

VERSION: Final = 3
_LENGTH_BYTES: Final = 8
_ARRAY: Final = "%nd"


def dump(state: Mapping[str, Any]) -> bytes:
    """Bytes of a nest of mappings, lists, strings, numbers, None and numpy arrays."""
    arrays: list[Any] = []
    size = 0

    def plain(value: object) -> object:
        nonlocal size
        if isinstance(value, np.ndarray):
            arrays.append(np.ascontiguousarray(value))
            at, size = size, size + value.nbytes
            return {_ARRAY: [value.dtype.str, list(value.shape), at]}
        if isinstance(value, np.generic):
            return value.item()
        raise TypeError(f"a snapshot cannot hold {type(value).__name__}")

    head = json.dumps({"version": VERSION, "state": state}, default=plain, separators=(",", ":")).encode()
    return b"".join([len(head).to_bytes(_LENGTH_BYTES, "little"), head, *arrays])


def load(data: bytes) -> dict[str, Any]:
    """What `dump` was given; arrays are fresh and writable.

    Raises
    ------
    FormatError
        ``snapshot`` when the bytes are none of ours, ``snapshot-version`` when they are of another version.
    """
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")

    def revived(found: dict[str, Any]) -> Any:
        if _ARRAY not in found:
            return found
        kind, shape, at = found[_ARRAY]
        return np.frombuffer(data, np.dtype(kind), int(np.prod(shape)), start + at).reshape(shape).copy()

    try:
        whole = json.loads(data[_LENGTH_BYTES:start], object_hook=revived)
        version, state = whole["version"], whole["state"]
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, SyntaxError) as error:
        raise FormatError("snapshot", str(error)) from error
    if version != VERSION or not isinstance(state, dict):
        raise FormatError("snapshot-version", f"{version} instead of {VERSION}")
    return state
