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

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

SLOT_BITS: Final = 20
LOW_BITS: Final = 9
PROBE_COLUMNS: Final = (
    "t1_slot", "t1_low", "ahead_ns", "turn_high", "turn_low", "rtt_high", "rtt_low",
    "tx_high", "tx_low", "rx_high", "rx_low",
)  # fmt: skip
"""Stored in place of t1..t4, tx_host_ns and rx_host_ns."""
_OF_THE_PAST: Final = ("t1", "t21_ns", "t31_ns", "t41_ns", "tx_host_ns", "rx_host_ns")
"""Stored columns before migration 0007."""


def probe_columns(t1: Any, t2: Any, t3: Any, t4: Any, tx_host: Any, rx_host: Any) -> dict[str, Any]:
    """The stored columns of `PROBE_COLUMNS` from int64 stamps and int32 delays (arrays of Arrow, of equal length)."""
    return _packed(t1, pc.subtract(t2, t1), pc.subtract(t3, t1), pc.subtract(t4, t1), tx_host, rx_host)


def current(table: str, rows: pa.Table) -> pa.Table:
    """`rows` as today's `table` stores them, whichever earlier version made them (failed inserts on disk)."""
    if table != "raw_probe" or "t31_ns" not in rows.column_names:
        return rows
    t1, t21, t31, t41, tx, rx = (rows.column(name) for name in _OF_THE_PAST)
    packed = _packed(t1.cast(pa.int64()), t21, t31, t41, tx, rx)
    others = {name: rows.column(name) for name in rows.column_names if name not in _OF_THE_PAST}
    return pa.table(others | packed)


def _packed(t1: Any, t21: Any, t31: Any, t41: Any, tx_host: Any, rx_host: Any) -> dict[str, Any]:
    turn = pc.subtract(t31, pc.coalesce(t21, 0))
    rtt = pc.subtract(t41, pc.coalesce(pc.subtract(t31, t21), 0))
    out = {
        "t1_slot": pc.shift_right(t1, SLOT_BITS),
        "t1_low": pc.bit_wise_and(t1, (1 << SLOT_BITS) - 1).cast(pa.uint32()),
        "ahead_ns": pc.subtract(t21, pc.coalesce(pc.shift_right(rtt, 1), 0)),
    }
    for name, value in (("turn", turn), ("rtt", rtt), ("tx", tx_host), ("rx", rx_host)):
        wide = value.cast(pa.int64())
        out[f"{name}_high"] = pc.shift_right(wide, LOW_BITS)
        out[f"{name}_low"] = pc.bit_wise_and(pc.coalesce(wide, 0), (1 << LOW_BITS) - 1).cast(pa.uint16())
    return out
