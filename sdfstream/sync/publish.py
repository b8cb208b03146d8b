"""Clock states as record batches of their topic."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from sdfstream.records import arrow, columns
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import Float64s, Int64s

STATUSES = ("synced", "holdover", "unsynced", "faulty")
KINDS = ("causal", "smoothed")
CAUSAL, SMOOTHED = 0, 1


@functools.lru_cache(maxsize=4)
def _dictionary(names: tuple[str, ...]) -> pa.Array:
    """The same names are written at every tick."""
    return arrow.text(names)


def clock_rows(
    names: Sequence[str],
    clock: Int64s,
    at_ns: Int64s,
    offset_ns: Float64s,
    skew_ppb: Float64s,
    err_ns: Float64s,
    n: Int64s,
    status: Int64s,
    kind: int,
) -> pa.RecordBatch:
    """A batch of ``sdf.state.clock.v1``: a row for each of `clock` (into `names`); `status`, `kind`: indices."""
    assert CLOCK.columns is not None
    return columns.build(
        CLOCK.columns,
        {
            "clock": columns.name_column(clock, _dictionary(tuple(names))),
            "at_ns": at_ns,
            "offset_ns": offset_ns,
            "skew_ppb": skew_ppb,
            "err_ns": err_ns,
            "n": n.astype(np.uint32),
            "status": columns.name_column(status, _dictionary(STATUSES)),
            "kind": columns.name_column(np.full(at_ns.size, kind), _dictionary(KINDS)),
        },
    )
