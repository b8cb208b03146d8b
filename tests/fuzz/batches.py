"""Record batches that fit their topic's columns: names of a small world, stamps near now, and every edge of a type.

Columns are cut out of reservoirs of some thousand drawn rows, each column at a place of its own: a batch costs some
tens of microseconds, and rows that were never drawn together meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.records.topics import NAME, TOPICS, Topic
from tests.fuzz.values import FLOATS, INTEGERS, NOT_FINITE, NOW_NS, Draw, pool_of

ROWS: Final = (0, 1, 1, 2, 3, 8, 20, 50)
_DEPTH: Final = 1024
_KINDS: Final = 4
"""Reservoirs of a topic: the first two calm, the others full of edges."""
_LASTS: Final = 300
"""Batches after which a reservoir is drawn anew."""


@dataclass(slots=True)
class Batches:
    """Batches of any topic."""

    draw: Draw
    _reservoirs: dict[tuple[str, int], list[pa.Array]] = field(default_factory=dict)
    _count: int = 0

    def one(self, topic: Topic, rows: int | None = None) -> pa.RecordBatch:
        """A batch of `topic`."""
        rng = self.draw.rng
        count = rng.choice(ROWS) if rows is None else rows
        key = (topic.name, rng.randrange(_KINDS))
        self._count += 1
        if self._count % _LASTS == 0:
            self._reservoirs.pop(key, None)
        if key not in self._reservoirs:
            self._reservoirs[key] = _reservoir(self.draw, topic, calm=key[1] < _KINDS // 2)
        last = _DEPTH - count
        arrays = [column.slice(rng.randrange(last + 1), count) for column in self._reservoirs[key]]
        return pa.RecordBatch.from_arrays(arrays, schema=topic.columns)


def _reservoir(draw: Draw, topic: Topic, *, calm: bool) -> list[pa.Array]:
    columns = TOPICS[topic.name].columns
    assert columns is not None
    rng = np.random.default_rng(draw.rng.getrandbits(64))
    return [_column(draw, rng, field, calm) for field in columns]


def _column(draw: Draw, rng: np.random.Generator, field: pa.Field, calm: bool) -> pa.Array:
    mask = rng.random(_DEPTH) < rng.choice((0.0, 0.2, 1.0), p=(0.6, 0.3, 0.1)) if field.nullable else None
    if field.type == NAME:
        return _names(draw, rng, field, mask)
    if pa.types.is_boolean(field.type):
        return pa.array(rng.random(_DEPTH) < 0.5, mask=mask)
    return pa.array(_numbers(rng, field, calm), field.type, mask=mask)


def _names(draw: Draw, rng: np.random.Generator, field: pa.Field, mask: Any) -> pa.Array:
    words = [draw.text(pool_of(field.name)) for _ in range(draw.rng.choice((1, 2, 5, 20)))]
    index = pa.array(rng.integers(0, len(words), _DEPTH).astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(index, pa.array(words, pa.utf8()))


def _numbers(rng: np.random.Generator, field: pa.Field, calm: bool) -> np.ndarray:
    dtype = np.dtype(field.type.to_pandas_dtype())
    odd = rng.random(_DEPTH) < (0.02 if calm else 0.3)
    if dtype.kind == "f":
        values = rng.normal(0, 10.0 ** rng.integers(0, 7, _DEPTH))
        edges = np.array(FLOATS if calm else FLOATS + NOT_FINITE)
        with np.errstate(over="ignore"):
            return np.where(odd, rng.choice(edges, _DEPTH), values).astype(dtype)
    info = np.iinfo(dtype)
    if field.name.endswith("_ns") and "since epoch" in (field.metadata or {}).get(b"unit", b"").decode():
        values = NOW_NS + rng.integers(-(10**9), 10**10, _DEPTH)
    else:
        values = rng.integers(0, min(100, int(info.max)), _DEPTH)
    inside = [n for n in (*INTEGERS, int(info.min), int(info.max)) if info.min <= n <= info.max]
    return np.where(odd, rng.choice(np.array(inside, dtype), _DEPTH), values.astype(dtype))
