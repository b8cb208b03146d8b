"""JSON of the answers, ASCII on one line; NaN, infinity and whole numbers beyond 64 bits are null (not known)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

_BEYOND: Final = 1 << 63


def encoded(value: Any) -> bytes:
    """`value` as JSON.

    >>> encoded({"loss": float("nan"), "n": 1})
    b'{"loss":null,"n":1}'
    """
    try:  # most answers are plain already, and to look at each of 100,000 values takes longer than to write them
        return _dumped(value)
    except (ValueError, TypeError):
        return _dumped(_plain(value))


def _dumped(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -_BEYOND <= value < _BEYOND else None
    if isinstance(value, Mapping):
        return {str(name): _plain(v) for name, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    return value
