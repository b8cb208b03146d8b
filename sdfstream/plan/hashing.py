"""Chance without a generator: numbers that depend on names alone.

A plan must be the same whoever draws it, and a host that joins must not change the draw of the others. So nothing is
drawn in a row: every choice is a hash of what it is about (rendezvous hashing, Thaler and Ravishankar 1998).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def of_names(names: Sequence[str]) -> UInt64s:
    """(n,) a hash of each name, the same on every machine."""
    digests = b"".join(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest() for name in names)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def mixed(*values: Any) -> UInt64s:
    """A hash of integers (arrays are taken element by element, and broadcast); the order of `values` matters.

    Each value is folded in by one round of splitmix64 (Steele, Lea and Flood 2014).

    >>> bool(mixed(np.arange(3), 7)[1] == mixed(1, 7)[0])
    True
    """
    found = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for value in values:
            folded = np.asarray(value)
            found = (found ^ folded.astype(np.uint64)) + _GOLDEN
            found = (found ^ (found >> np.uint64(30))) * _FIRST
            found = (found ^ (found >> np.uint64(27))) * _SECOND
            found = found ^ (found >> np.uint64(31))
    return found


def of_pair(a: UInt64s, b: UInt64s) -> UInt64s:
    """A hash of two values, in either order."""
    return mixed(np.minimum(a, b), np.maximum(a, b))
