"""What an object holds: bytes of its arrays and entries of its containers, by path of attributes."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

_DEPTH = 7
_SAMPLE = 3
"""Entries of a container that are looked into; all of one kind hold about the same."""


def weigh(thing: object, name: str) -> Counter[str]:
    """Entries (``path[]``) and array bytes (``path``) below `thing`."""
    found: Counter[str] = Counter()
    _walk(thing, name, found, set(), _DEPTH)
    return found


def grown(before: Counter[str], after: Counter[str], least: int) -> list[tuple[str, int, int]]:
    """(path, before, after) of what grew by at least `least`, the most first."""
    rows = [(path, before[path], n) for path, n in after.items() if n - before[path] >= least]
    return sorted(rows, key=lambda row: row[1] - row[2])


def _walk(thing: Any, path: str, found: Counter[str], seen: set[int], depth: int) -> None:
    if depth < 0 or id(thing) in seen or isinstance(thing, str | bytes | int | float | type | None | bool):
        return
    seen.add(id(thing))
    if isinstance(thing, np.ndarray):
        found[path] += thing.nbytes
        return
    if isinstance(thing, Mapping):
        found[f"{path}[]"] += len(thing)
        few = len(thing) <= 40 and all(isinstance(k, str) for k in thing)
        for place, (key, value) in enumerate(list(thing.items())):
            if few or place < _SAMPLE:
                _walk(value, f"{path}.{key}" if few else f"{path}[*]", found, seen, depth - 1)
        return
    if isinstance(thing, list | tuple | set | frozenset | deque):
        found[f"{path}[]"] += len(thing)
        for value in list(thing)[:_SAMPLE]:
            _walk(value, f"{path}[*]", found, seen, depth - 1)
        return
    if not type(thing).__module__.startswith(("sdfstream", "tests")):
        return
    slots = [s for kind in type(thing).__mro__ for s in getattr(kind, "__slots__", ())]
    for key in [*getattr(thing, "__dict__", ()), *slots]:
        _walk(getattr(thing, key, None), f"{path}.{key}", found, seen, depth - 1)
