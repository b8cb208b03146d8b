"""A probe's stamps and host delays as ``raw_probe`` stores them: in columns that compress. Pure; exact.

A nanosecond stamp is noise in its last bits and slow in its first. One codec for both pays for the noise twice, so
such a value is stored as ``high = value >> bits`` and ``low = value & (2**bits - 1)``: low is stored as it is, high
compresses. Differences are taken along the packet's route, so that each carries its own noise only::

    t1    = t1_slot << 20 | t1_low                 a slot is 1.05 ms
    turn  = t3 - t2        (t3 - t1 where t2 is unknown)        turn_high << 9 | turn_low
    rtt   = t4 - t1 - turn (t4 - t1 where t2 or t3 is unknown)  rtt_high << 9 | rtt_low
    ahead = t2 - t1 - (rtt >> 1)  (t2 - t1 where rtt is unknown): how far ahead clock_dst seems to be
    tx_host, rx_host                                            high << 9 | low

Everything wraps at 64 bits, as the ALIAS columns do that undo it; null is null in high, and low is 0 there. Measured:
``docs/archive.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from sdfstream.records import arrow
from sdfstream.records.units import Bools, Int64s

SLOT_BITS: Final = 20
LOW_BITS: Final = 9
PROBE_COLUMNS: Final = (
    "t1_slot", "t1_low", "ahead_ns", "turn_high", "turn_low", "rtt_high", "rtt_low",
    "tx_high", "tx_low", "rx_high", "rx_low",
)  # fmt: skip
"""Stored in place of t1..t4, tx_host_ns and rx_host_ns."""
_STORED: Final = {
    name: pa.uint32() if name == "t1_low" else pa.uint16() if name.endswith("_low") else pa.int64()
    for name in PROBE_COLUMNS
}
_AT_ONCE: Final = 8192
"""Rows of one pass over all columns: what is between stays in the processor's cache."""
_OF_THE_PAST: Final = ("t1", "t21_ns", "t31_ns", "t41_ns", "tx_host_ns", "rx_host_ns")
"""Stored columns before migration 0007."""


def probe_columns(t1: Any, t2: Any, t3: Any, t4: Any, tx_host: Any, rx_host: Any) -> dict[str, pa.Array]:
    """The stored columns of `PROBE_COLUMNS` from int64 stamps and int32 delays (arrays of Arrow, of equal length)."""
    given = [arrow.whole(column) for column in (t1, t2, t3, t4, tx_host, rx_host)]
    values = [arrow.plain(column) for column in given]
    known = [~arrow.nulls(column) if column.null_count else None for column in given]
    out = {name: np.empty(len(values[0]), _STORED[name].to_pandas_dtype()) for name in PROBE_COLUMNS}
    for low in range(0, len(values[0]), _AT_ONCE):
        rows = slice(low, low + _AT_ONCE)
        _pack(
            [v[rows] for v in values],
            [None if k is None else k[rows] for k in known],
            {name: column[rows] for name, column in out.items()},
        )
    present = {
        "ahead_ns": known[1],
        "turn_high": known[2],
        "rtt_high": known[3],
        "tx_high": known[4],
        "rx_high": known[5],
    }
    return {name: arrow.column(column, _STORED[name], present.get(name)) for name, column in out.items()}


def current(table: str, rows: pa.Table) -> pa.Table:
    """`rows` as today's `table` stores them, whichever earlier version made them (failed inserts on disk)."""
    if table != "raw_probe" or "t31_ns" not in rows.column_names:
        return rows
    t1, t21, t31, t41, tx, rx = (rows.column(name) for name in _OF_THE_PAST)
    t1 = t1.cast(pa.int64())
    packed = probe_columns(t1, pc.add(t1, t21), pc.add(t1, t31), pc.add(t1, t41), tx, rx)
    others = {name: rows.column(name) for name in rows.column_names if name not in _OF_THE_PAST}
    return pa.table(others | packed)


def _pack(values: Sequence[Int64s], known: Sequence[Bools | None], out: Mapping[str, npt.NDArray[Any]]) -> None:
    """Some rows of `values` (t1..t4, tx_host, rx_host), where they are `known` (None: everywhere), into `out`."""
    t1, t2, t3, t4, tx, rx = values
    out["t1_slot"][:] = t1 >> SLOT_BITS
    out["t1_low"][:] = t1 & ((1 << SLOT_BITS) - 1)
    _, arrived, left, answered, tx_known, rx_known = known
    between = t3 - _or(t2, arrived, t1)
    turn = _or(between, left, 0)
    rtt = _or(t4 - t1 - _or(between, _both(arrived, left), 0), answered, 0)
    out["ahead_ns"][:] = _or(t2 - t1 - (rtt >> 1), arrived, 0)
    _split(turn, None, out, "turn")
    _split(rtt, None, out, "rtt")
    _split(tx, tx_known, out, "tx")
    _split(rx, rx_known, out, "rx")


def _split(values: Int64s, known: Bools | None, out: Mapping[str, npt.NDArray[Any]], name: str) -> None:
    whole = _or(values, known, 0)
    out[f"{name}_high"][:] = whole >> LOW_BITS
    out[f"{name}_low"][:] = whole & ((1 << LOW_BITS) - 1)


def _or(values: Int64s, known: Bools | None, other: Int64s | int) -> Int64s:
    return values if known is None else np.where(known, values, other)


def _both(a: Bools | None, b: Bools | None) -> Bools | None:
    if a is None or b is None:
        return a if b is None else b
    return a & b
