"""Throughput of queue pairs from ``sdf.derived.qp.v1``: the last windows of each, in arrays.

A queue pair has a window only while it has something to send, so the mean over its windows is what it got while it
wanted something; a pause between two collectives is no loss of throughput. Windows lie on reference time, which may be
hours off bus time, so they are compared with each other by their number and are fresh by when they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]

RING: Final = 64
"""Windows kept per queue pair: 6.4 s."""
MAX_QPS: Final = 65_536
_FRESH_NS: Final = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a queue pair got over some windows."""

    bps: float
    error_bps: float
    """Standard error of `bps`, from how the windows differ."""
    n: int


class Windows:
    """The last windows of every queue pair."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._slot: dict[str, int] = {}
        self._free: list[int] = []
        self._table = Table(
            {
                "window": np.full(RING, -1, np.int64),
                "bytes": np.zeros(RING, np.float64),
                "path": np.zeros(RING, np.int32),
                "newest": np.int64(-1),
                "seen_ns": np.int64(ABSENT_NS),
            }
        )
        self.newest = -1
        """Number of the newest window of any queue pair."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take a batch of windows; FormatError when a column cannot be read."""
        codes, names = columns.names(batch, "qp")
        start_ns = columns.values(batch, "at_ns").astype(np.int64)
        length_ns = columns.values(batch, "window_ns").astype(np.int64)
        moved = columns.values(batch, "bytes").astype(np.float64)
        path = columns.values(batch, "path").astype(np.int64)
        slot = np.array([-1 if name is None else self._of(name) for name in names] + [-1], np.int64)[codes]
        good = (slot >= 0) & (length_ns == TICK_NS) & (path < 65_536) & (start_ns >= 0)
        self._counters.add("refused", "qp-row", int((~good).sum()))
        if not good.any():
            return
        slot, number = slot[good], start_ns[good] // TICK_NS
        ring = number % RING
        newer = number >= self._table["window"][slot, ring]
        slot, number, ring = slot[newer], number[newer], ring[newer]
        self._table["window"][slot, ring] = number
        self._table["bytes"][slot, ring] = moved[good][newer]
        self._table["path"][slot, ring] = path[good][newer]
        np.maximum.at(self._table["newest"], slot, number)
        self._table["seen_ns"][slot] = at_ns
        self.newest = max(self.newest, int(number.max(initial=-1)))

    def _of(self, qp: str) -> int:
        slot = self._slot.get(qp)
        if slot is None:
            if len(self._slot) >= MAX_QPS:
                return -1
            slot = self._free.pop() if self._free else self._table.rows
            self._table.ensure(slot + 1)
            self._slot[qp] = slot
        return slot

    def rates(self, span: int, now_ns: int) -> dict[str, float]:
        """Throughput (bit/s) of every queue pair over its last `span` windows.

        Only of those that send now and have done so for half of them at least.
        """
        t = self._table
        if not t.rows:
            return {}
        fresh = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] <= _FRESH_NS)
        used = (t["window"] >= 0) & (t["window"] > (t["newest"] - span)[:, None])
        n = used.sum(axis=1)
        bps = np.where(used, t["bytes"], 0.0).sum(axis=1) * 8 * NS_PER_S / TICK_NS / np.maximum(n, 1)
        alive = fresh & (n >= max(1, span // 2))
        return {qp: float(bps[slot]) for qp, slot in self._slot.items() if alive[slot]}

    def between(self, qp: str, first: int, last: int, path: int | None = None) -> Throughput:
        """Throughput over the windows numbered `first` to `last`, both included; with `path` of those on it only."""
        slot = self._slot.get(qp)
        if slot is None:
            return Throughput(0.0, 0.0, 0)
        window = self._table["window"][slot]
        used = (window >= first) & (window <= last)
        if path is not None:
            used &= self._table["path"][slot] == path
        bps = self._table["bytes"][slot][used] * 8 * NS_PER_S / TICK_NS
        n = int(bps.size)
        error = float(bps.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        return Throughput(float(bps.mean()) if n else 0.0, error, n)

    def newest_of(self, qp: str) -> int:
        """Number of its newest window; −1: none."""
        slot = self._slot.get(qp)
        return -1 if slot is None else int(self._table["newest"][slot])

    def first_on(self, qp: str, path: int, after: int) -> int | None:
        """The first window, later than number `after`, whose last chunk left on `path`."""
        slot = self._slot.get(qp)
        if slot is None:
            return None
        window = self._table["window"][slot]
        found = window[(window > after) & (self._table["path"][slot] == path)]
        return int(found.min()) if found.size else None

    def path(self, qp: str, now_ns: int) -> int | None:
        """Source port that its newest window shows; None: nothing fresh."""
        slot = self._slot.get(qp)
        if slot is None:
            return None
        seen_ns, newest = int(self._table["seen_ns"][slot]), int(self._table["newest"][slot])
        if seen_ns == ABSENT_NS or now_ns - seen_ns > _FRESH_NS or newest < 0:
            return None
        return int(self._table["path"][slot, newest % RING])

    def drop(self, qp: str) -> None:
        """The queue pair is gone."""
        slot = self._slot.pop(qp, None)
        if slot is not None:
            self._table.reset(np.array([slot], np.int64))
            self._free.append(slot)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "slot": list(self._slot.items()),
            "free": list(self._free),
            "table": self._table.snapshot(),
            "newest": self.newest,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._slot = {qp: slot for qp, slot in state["slot"]}
        self._free = list(state["free"])
        self._table.restore(state["table"])
        self.newest = state["newest"]
