"""What the controller measures by: queues on links, and throughput of queue pairs.

**Queues**, by the probes that cross a link (``sdf.derived.owd.v1``): delay over each path's own floor, with its error
bar. Of every directed probe path the last window counts, for two seconds. A link's excess is the median over the probe
paths that cross it: a queue elsewhere on one of them does not make it look congested, a queue on it shows on all.
`QueueDelays` receives tens of thousands of paths ten times a second and is seldom asked, so it only keeps the messages
of the last two seconds until a queue is asked for.

**Throughput** (``sdf.derived.qp.v1``): the last windows of each queue pair, in arrays. A queue pair has a window only
while it has something to send, so the mean over its windows is what it got while it wanted something; a pause between
two collectives is no loss of throughput. Windows lie on reference time, which may be hours off bus time, so they are
compared with each other by their number and are fresh by when they came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.actuate.routes import Directed
from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S, TICK_NS
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MAX_NICS: Final = 1 << 18
_MAX_PATHS: Final = 400_000
_DELAYS_FRESH_NS: Final = 2 * NS_PER_S


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """The queue of a link, as the probes over it show."""

    excess_ns: float
    err_ns: float
    """Median error bar of the delays behind it."""
    n: int
    """Probe paths behind it; 0: nothing is known."""


class _DelayRows(NamedTuple):
    """The rows of one message: codes into its own names, −1 for null."""

    at_ns: int
    src: tuple[npt.NDArray[np.int32], list[str]]
    dst: tuple[npt.NDArray[np.int32], list[str]]
    rev: Ints
    path: Ints
    dscp: Ints
    start_ns: Ints
    excess: Floats
    err: Floats


class QueueDelays:
    """The last window of every directed probe path."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._nics: dict[str, int] = {}
        self._index = KeyIndex(_MAX_PATHS)
        self._table = Table(
            {"start_ns": np.int64(ABSENT_NS), "seen_ns": np.int64(ABSENT_NS), "excess": np.nan, "err": np.nan}
        )
        self._waiting: deque[_DelayRows] = deque()
        """Messages of the last two seconds that are not in the table yet."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take corrected delays; FormatError when a column cannot be read."""
        direction, directions = columns.names(batch, "dir")
        delays = _DelayRows(
            at_ns,
            columns.names(batch, "src"),
            columns.names(batch, "dst"),
            np.array([{"fwd": 0, "rev": 1}.get(name, -1) for name in directions] + [-1], np.int64)[direction],
            columns.values(batch, "path").astype(np.int64),
            columns.values(batch, "dscp").astype(np.int64),
            columns.values(batch, "at_ns").astype(np.int64),
            columns.filled(batch, "excess_p50_ns", np.nan).astype(np.float64),
            columns.filled(batch, "err_ns", np.nan).astype(np.float64),
        )
        self._counters.add("refused", "owd-row", batch.num_rows - int(np.count_nonzero(_good(delays))))
        self._waiting.append(delays)
        while self._waiting and at_ns - self._waiting[0].at_ns > _DELAYS_FRESH_NS:
            self._waiting.popleft()

    def _settle(self) -> None:
        """Enter what waits into the table, in order; an earlier window replaces only one received over 2 s before."""
        while self._waiting:
            delays = self._waiting.popleft()
            good = _good(delays) & ~np.isnan(delays.excess) & ~np.isnan(delays.err)
            src, dst = self._numbers(*delays.src), self._numbers(*delays.dst)
            good &= (src >= 0) & (dst >= 0)
            slot = self._index.add(
                _packed(src[good], dst[good], delays.path[good], delays.dscp[good], delays.rev[good])
            )
            self._table.ensure(self._index.slots)
            t, start_ns = self._table, delays.start_ns[good]
            keep = slot >= 0
            keep &= (start_ns >= t["start_ns"][slot]) | (delays.at_ns - t["seen_ns"][slot] > _DELAYS_FRESH_NS)
            slot = slot[keep]
            t["start_ns"][slot], t["seen_ns"][slot] = start_ns[keep], delays.at_ns
            t["excess"][slot], t["err"][slot] = delays.excess[good][keep], delays.err[good][keep]

    def forget(self, before_ns: int) -> None:
        """Drop paths without a window since."""
        gone = np.flatnonzero((self._table["seen_ns"] != ABSENT_NS) & (self._table["seen_ns"] < before_ns))
        self._index.remove(gone)
        self._table.reset(gone)

    def _numbers(self, codes: npt.NDArray[np.int32], names: list[str]) -> Ints:
        numbers: Ints = np.array([self._number(n) for n in names] + [-1], np.int64)[codes]
        return numbers

    def _number(self, nic: str | None) -> int:
        if nic is None:
            return -1
        if nic not in self._nics and len(self._nics) >= _MAX_NICS:
            return -1
        return self._nics.setdefault(nic, len(self._nics))

    def queue(self, paths: Sequence[Directed], now_ns: int, dscp: int | None = None) -> LinkQueue:
        """What these directed probe paths show together; those of class `dscp` alone, where there are any."""
        self._settle()
        same = [p for p in paths if p.key.dscp == dscp]
        slots = self._slots(same or paths)
        slots = slots[slots >= 0]
        slots = slots[now_ns - self._table["seen_ns"][slots] <= _DELAYS_FRESH_NS] if slots.size else slots
        if not slots.size:
            return LinkQueue(0.0, 0.0, 0)
        excess, err = self._table["excess"][slots], self._table["err"][slots]
        return LinkQueue(float(np.median(excess)), float(np.median(err)), int(slots.size))

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

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        self._settle()
        return {"nics": list(self._nics), "index": self._index.snapshot(), "table": self._table.snapshot()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._waiting.clear()
        self._nics = {nic: number for number, nic in enumerate(state["nics"])}
        self._index.restore(state["index"])
        self._table.restore(state["table"])


def _good(delays: _DelayRows) -> npt.NDArray[np.bool_]:
    good: npt.NDArray[np.bool_] = (delays.src[0] >= 0) & (delays.dst[0] >= 0) & (delays.rev >= 0)
    good &= (delays.path < 65_536) & (delays.dscp < 64)
    return good


def _packed(src: Ints, dst: Ints, path: Ints, dscp: Ints, rev: Ints) -> Ints:
    packed: Ints = (((((src << 18) | dst) << 16) | path) << 7) | (dscp << 1) | rev
    return packed


RING: Final = 64
"""Windows held per queue pair: 6.4 s."""
MAX_QPS: Final = 65_536
_WINDOWS_FRESH_NS: Final = 3 * NS_PER_S


@dataclass(frozen=True, slots=True)
class MeanRate:
    """What a queue pair got over some windows."""

    bps: float
    error_bps: float
    """Standard error of `bps`, from how the windows differ."""
    n: int


class QpWindows:
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
        fresh = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] <= _WINDOWS_FRESH_NS)
        used = (t["window"] >= 0) & (t["window"] > (t["newest"] - span)[:, None])
        n = used.sum(axis=1)
        bps = np.where(used, t["bytes"], 0.0).sum(axis=1) * 8 * NS_PER_S / TICK_NS / np.maximum(n, 1)
        alive = fresh & (n >= max(1, span // 2))
        return {qp: float(bps[slot]) for qp, slot in self._slot.items() if alive[slot]}

    def between(self, qp: str, first: int, last: int, path: int | None = None) -> MeanRate:
        """Throughput over the windows numbered `first` to `last`, both included; with `path` of those on it only."""
        slot = self._slot.get(qp)
        if slot is None:
            return MeanRate(0.0, 0.0, 0)
        window = self._table["window"][slot]
        used = (window >= first) & (window <= last)
        if path is not None:
            used &= self._table["path"][slot] == path
        bps = self._table["bytes"][slot][used] * 8 * NS_PER_S / TICK_NS
        n = int(bps.size)
        error = float(bps.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        return MeanRate(float(bps.mean()) if n else 0.0, error, n)

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
        if seen_ns == ABSENT_NS or now_ns - seen_ns > _WINDOWS_FRESH_NS or newest < 0:
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
