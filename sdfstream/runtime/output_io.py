"""How verbs speak: people read stderr and tables; programs read the last line of stdout."""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def emit(as_json: bool, result: dict[str, Any], text: str) -> None:
    """Print `text`, or with `as_json` one compact object as the last line on stdout and `text` on stderr."""
    if as_json:
        if text:
            print(text, file=sys.stderr)
        print(compact(result))
    else:
        print(text)


def compact(result: dict[str, Any]) -> str:
    """`result` as one line of JSON without nulls and without NaN."""
    return json.dumps(_without_nulls(result), separators=(",", ":"), sort_keys=True, allow_nan=False)


def progress(text: str) -> None:
    """Say on stderr what is going on."""
    print(text, file=sys.stderr, flush=True)


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(k): _without_nulls(v) for k, v in value.items() if v is not None and not _is_nan(v)}
    if isinstance(value, list | tuple):
        return [_without_nulls(v) for v in value if v is not None and not _is_nan(v)]
    return value


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
