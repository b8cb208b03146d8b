"""The registry's pair number of every row, by whole columns: names are looked up once a dictionary, not once a row."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import KeyIndex
from sdfstream.records.units import Int32s, Int64s

_MOST_NAMES: Final = 1 << 20
_MOST_ENDS: Final = 1 << 24
_NAME_BITS: Final = 12
"""While so many bits number every name, the five names of a row are one key, looked up once instead of four times."""


class SessionEnds(NamedTuple):
    """Everything that names a session except its class and its path selector."""

    src: str
    dst: str
    transport: str
    clock_src: str
    clock_dst: str


class NamedEnds(NamedTuple):
    """The five name columns of some rows, as codes into dictionaries."""

    codes: tuple[Int32s, ...]
    """Of `SessionEnds`, in its order; each (rows,)."""
    dictionaries: tuple[list[str], ...]

    def row(self, row: int) -> SessionEnds:
        """The names of one row."""
        return SessionEnds(*(d[int(c[row])] for c, d in zip(self.codes, self.dictionaries, strict=True)))


class PairKeys:
    """Names in full to a dense number, given on first sight: only a cache, so that it may be emptied at any time."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._name: dict[str, int] = {}
        self._begin(packed=True)

    def _begin(self, *, packed: bool) -> None:
        """No pair is known."""
        self._packed = packed
        self._ends, self._both, self._pairs = KeyIndex(), KeyIndex(), KeyIndex()
        self.number: Int64s = np.empty(0, dtype=np.int64)
        """The registry's number of each pair here."""

    def of(self, ends: NamedEnds) -> tuple[Int64s, Int64s]:
        """(rows,) number of each row's pair here; and the rows at which a new one appears first, in order."""
        if len(self._name) + sum(map(len, ends.dictionaries)) > _MOST_NAMES or len(self._ends) > _MOST_ENDS:
            self.clear()
        numbers = (_numbered(c, d, self._name) for c, d in zip(ends.codes, ends.dictionaries, strict=True))
        src, dst, transport, clock_src, clock_dst = numbers
        if self._packed and len(self._name) > 1 << _NAME_BITS:
            self._begin(packed=False)
        if self._packed:
            key = src
            for number in (dst, transport, clock_src, clock_dst):
                key = key << _NAME_BITS | number
            return self._pairs.add_new(key)
        near, far = self._ends.add(src << 32 | clock_src), self._ends.add(dst << 32 | clock_dst)
        # two numbers a key, each below 2³¹ however many names a message brings: none can pass for another
        return self._pairs.add_new(self._both.add(near << 32 | far) << 32 | transport)


def _numbered(codes: Int32s, dictionary: list[str], known: dict[str, int]) -> Int64s:
    try:
        lookup = np.fromiter(map(known.__getitem__, dictionary), np.int64, len(dictionary))
    except KeyError:
        lookup = np.array([known.setdefault(name, len(known)) for name in dictionary], dtype=np.int64)
    result: Int64s = lookup[codes]
    return result
