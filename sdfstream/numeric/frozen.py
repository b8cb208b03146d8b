"""Plain values and arrays to bytes and back: the snapshot format of stages.

JSON; an array travels as its type, shape and base64 of its bytes, so a snapshot is deterministic and
reading one runs no foreign code (unlike pickle).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from sdfstream.errors import FormatError

VERSION = 2


def dump(state: Mapping[str, Any]) -> bytes:
    """Bytes of a nest of mappings, lists, strings, numbers, None and numpy arrays."""
    whole = {"version": VERSION, "state": state}
    return json.dumps(whole, default=_array, separators=(",", ":")).encode()


def load(data: bytes) -> dict[str, Any]:
    """What `dump` was given.

    Raises
    ------
    FormatError
        ``snapshot`` when the bytes are none of ours, ``snapshot-version`` when they are of another version.
    """
    try:
        whole = json.loads(data, object_hook=_revive)
        version, state = whole["version"], whole["state"]
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError("snapshot", str(error)) from error
    if version != VERSION or not isinstance(state, dict):
        raise FormatError("snapshot-version", f"{version} instead of {VERSION}")
    return state


def _array(value: object) -> object:
    if isinstance(value, np.ndarray):
        whole = np.ascontiguousarray(value)
        return {"%nd": [whole.dtype.str, list(whole.shape), base64.b64encode(whole.tobytes()).decode()]}
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a snapshot cannot hold {type(value).__name__}")


def _revive(found: dict[str, Any]) -> Any:
    if "%nd" not in found:
        return found
    kind, shape, body = found["%nd"]
    return np.frombuffer(base64.b64decode(body), dtype=np.dtype(kind)).reshape(shape).copy()
