"""Which links a queue stands on, by the probes that cross them: delay over each path's own floor, with its error bar.

Of every directed probe path the last window of ``sdf.derived.owd.v1`` counts. A link's excess is the median over the
probe paths that cross it: a queue elsewhere on one of them does not make it look congested, a queue on it shows on all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.actuate.routes import Directed
from sdfstream.numeric.keyindex import KeyIndex
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]

_MAX_NICS: Final = 1 << 18
_MAX_PATHS: Final = 400_000
_FRESH_NS: Final = 2 * NS_PER_S
_NS_PER_MS_TEXT: Final = 1e6


@dataclass(frozen=True, slots=True)
class Queue:
    """What the probes over some link say of its queue."""

    excess_ns: float
    err_ns: float
    """Median error bar of the delays behind it."""
    n: int
    """Probe paths behind it; 0: nothing is known."""


class Excess:
    """The last window of every directed probe path."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._nics: dict[str, int] = {}
        self._index = KeyIndex(_MAX_PATHS)
        self._table = Table(
            {"start_ns": np.int64(ABSENT_NS), "seen_ns": np.int64(ABSENT_NS), "excess": np.nan, "err": np.nan}
        )

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take corrected delays; FormatError when a column cannot be read."""
        src, dst = self._numbers(batch, "src"), self._numbers(batch, "dst")
        way, ways = columns.names(batch, "dir")
        rev = np.array([{"fwd": 0, "rev": 1}.get(name, -1) for name in ways] + [-1], np.int64)[way]
        path = columns.values(batch, "path").astype(np.int64)
        dscp = columns.values(batch, "dscp").astype(np.int64)
        start_ns = columns.values(batch, "at_ns").astype(np.int64)
        excess = columns.filled(batch, "excess_p50_ns", np.nan).astype(np.float64)
        err = columns.filled(batch, "err_ns", np.nan).astype(np.float64)
        good = (src >= 0) & (dst >= 0) & (rev >= 0) & (path < 65_536) & (dscp < 64)
        self._counters.add("refused", "owd-row", int((~good).sum()))
        good &= ~np.isnan(excess) & ~np.isnan(err)
        slot = self._index.add(_packed(src[good], dst[good], path[good], dscp[good], rev[good]))
        self._table.ensure(self._index.slots)
        keep = slot >= 0
        slot, start_ns, excess, err = slot[keep], start_ns[good][keep], excess[good][keep], err[good][keep]
        later = start_ns >= self._table["start_ns"][slot]
        slot = slot[later]
        self._table["start_ns"][slot], self._table["seen_ns"][slot] = start_ns[later], at_ns
        self._table["excess"][slot], self._table["err"][slot] = excess[later], err[later]

    def _numbers(self, batch: pa.RecordBatch, name: str) -> Ints:
        codes, names = columns.names(batch, name)
        numbers: Ints = np.array([self._number(n) for n in names] + [-1], np.int64)[codes]
        return numbers

    def _number(self, nic: str | None) -> int:
        if nic is None:
            return -1
        if nic not in self._nics and len(self._nics) >= _MAX_NICS:
            return -1
        return self._nics.setdefault(nic, len(self._nics))

    def queue(self, paths: Sequence[Directed], now_ns: int, dscp: int | None = None) -> Queue:
        """What these directed probe paths show together; those of class `dscp` alone, where there are any."""
        same = [p for p in paths if p.key.dscp == dscp]
        slots = self._slots(same or paths)
        slots = slots[slots >= 0]
        slots = slots[now_ns - self._table["seen_ns"][slots] <= _FRESH_NS] if slots.size else slots
        if not slots.size:
            return Queue(0.0, 0.0, 0)
        excess, err = self._table["excess"][slots], self._table["err"][slots]
        return Queue(float(np.median(excess)), float(np.median(err)), int(slots.size))

    def _slots(self, paths: Sequence[Directed]) -> Ints:
        known = [p for p in paths if p.key.src in self._nics and p.key.dst in self._nics]
        if not known:
            return np.empty(0, np.int64)
        src = np.array([self._nics[p.key.src] for p in known], np.int64)
        dst = np.array([self._nics[p.key.dst] for p in known], np.int64)
        path = np.array([p.key.path for p in known], np.int64)
        dscp = np.array([p.key.dscp for p in known], np.int64)
        rev = np.array([p.dir == "rev" for p in known], np.int64)
        return self._index.find(_packed(src, dst, path, dscp, rev))

    def freeze(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"nics": list(self._nics), "index": self._index.freeze(), "table": self._table.freeze()}

    def thaw(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `freeze`."""
        self._nics = {nic: number for number, nic in enumerate(state["nics"])}
        self._index.thaw(state["index"])
        self._table.thaw(state["table"])


def _packed(src: Ints, dst: Ints, path: Ints, dscp: Ints, rev: Ints) -> Ints:
    packed: Ints = (((((src << 18) | dst) << 16) | path) << 7) | (dscp << 1) | rev
    return packed
