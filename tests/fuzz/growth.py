"""How large the containers of a stage are, wherever they hang: what grows without a bound shows here."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa

MOST: Final = 1_000_000
"""Entries that no table of any stage is declared to exceed (`max_paths`, `MOST_FLOWS`, …: 500,000 at most)."""
_DEPTH: Final = 12


def containers(root: object) -> dict[str, int]:
    """Entries of every dict, list, set, deque and array that hangs on `root`, by the attributes that lead to it."""
    found: dict[str, int] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any, int]] = [("", root, 0)]
    while waiting:
        path, value, depth = waiting.pop()
        if id(value) in seen or depth > _DEPTH or isinstance(value, str | bytes | int | float | pa.RecordBatch):
            continue
        seen.add(id(value))
        if isinstance(value, Mapping | list | tuple | set | frozenset | deque | np.ndarray):
            entries = int(value.size) if isinstance(value, np.ndarray) else len(value)
            found[path] = max(found.get(path, 0), entries)
        waiting += [(f"{path}{name}", below, depth + 1) for name, below in _below(value)]
    return found


def _below(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from (("[]", below) for below in list(value.values())[:200])
    elif isinstance(value, list | tuple | deque):
        yield from (("[]", below) for below in list(value)[:200])
    elif type(value).__module__.startswith("sdfstream"):
        names = {*getattr(value, "__dict__", ()), *(n for k in type(value).__mro__ for n in _slots(k))}
        yield from ((f".{name}", getattr(value, name)) for name in sorted(names) if hasattr(value, name))


def _slots(kind: type) -> tuple[str, ...]:
    slots = getattr(kind, "__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
