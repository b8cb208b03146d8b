"""The queue of a link by the probes that cross it (``sdf.derived.owd.v1``): delay over each path's own floor.

Of every directed probe path the last window counts, for two seconds. A link's excess is the median over the probe paths
that cross it: a queue elsewhere on one of them does not make it look congested, a queue on it shows on all. Tens of
thousands of paths are received ten times a second and a queue is seldom asked for, so only the rows of the last two
seconds are kept until one is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.actuate.routes import Directed, Routes
from sdfstream.errors import FormatError
from sdfstream.numeric.group import runs
from sdfstream.numeric.table import KeyIndex, Table
from sdfstream.records import columns
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Message
from sdfstream.records.units import ABSENT_NS, NS_PER_S
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MAX_NICS: Final = 1 << 18
_MAX_PATHS: Final = 400_000
_DELAYS_FRESH_NS: Final = 2 * NS_PER_S
_LISTS: Final = 8


@dataclass(frozen=True, slots=True)
class LinkQueue:
    """The queue of a link, as the probes over it show."""

    excess_ns: float
    err_ns: float
    """Median error bar of the delays behind it."""
    n: int
    """Probe paths behind it; 0: nothing is known."""


class _DelayRows(NamedTuple):
    """The rows of some messages: codes into their own names, −1 for null."""

    message: Ints
    """Number of each row's message, ascending."""
    at_ns: Ints
    """When that came."""
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

    def __init__(self, routes: Routes, counters: Counters) -> None:
        self._routes, self._counters = routes, counters
        self._nics: dict[str, int] = {}
        self._numbered: deque[tuple[list[str], Ints]] = deque(maxlen=_LISTS)
        """Lists of names met last, with their numbers: while paths stay, windows name the same NICs."""
        self._index = KeyIndex(_MAX_PATHS)
        self._table = Table(
            {"start_ns": np.int64(ABSENT_NS), "seen_ns": np.int64(ABSENT_NS), "excess": np.nan, "err": np.nan}
        )
        self._waiting: deque[_DelayRows] = deque()
        """Messages of the last two seconds that are not in the table yet."""

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages of corrected delays of one slice; one that cannot be read is counted."""
        whole = JOINS.joined(messages)
        try:
            if whole is None:
                raise FormatError("form", "messages of two shapes")
            message = np.arange(len(messages)).repeat([m.rows for m in messages])
            self._take(whole, message, np.array([m.bus_at_ns for m in messages], np.int64)[message])
        except FormatError as error:
            if len(messages) == 1:
                self._counters.add("refused", error.reason)
                return
            for one in messages:
                self.take([one])

    def _take(self, batch: pa.RecordBatch, message: Ints, at_ns: Ints) -> None:
        direction, directions = columns.names(batch, "dir")
        delays = _DelayRows(
            message,
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
        if not at_ns.size:
            return
        self._waiting.append(delays)
        while at_ns[-1] - self._waiting[0].at_ns[-1] > _DELAYS_FRESH_NS:
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
            figures = delays.at_ns[good], delays.start_ns[good], delays.excess[good], delays.err[good]
            for rows in _one_by_one(slot, delays.message[good]):
                self._enter(slot[rows], *(column[rows] for column in figures))

    def _enter(self, slot: Ints, at_ns: Ints, start_ns: Ints, excess: Floats, err: Floats) -> None:
        t = self._table
        keep = slot >= 0
        keep &= (start_ns >= t["start_ns"][slot]) | (at_ns - t["seen_ns"][slot] > _DELAYS_FRESH_NS)
        slot = slot[keep]
        t["start_ns"][slot], t["seen_ns"][slot] = start_ns[keep], at_ns[keep]
        t["excess"][slot], t["err"][slot] = excess[keep], err[keep]

    def forget(self, before_ns: int) -> None:
        """Drop paths without a window since."""
        gone = np.flatnonzero((self._table["seen_ns"] != ABSENT_NS) & (self._table["seen_ns"] < before_ns))
        self._index.remove(gone)
        self._table.reset(gone)

    def _numbers(self, codes: npt.NDArray[np.int32], names: list[str]) -> Ints:
        known = next((numbers for of, numbers in self._numbered if of == names), None)
        if known is None:
            known = np.array([self._number(n) for n in names] + [-1], np.int64)
            self._numbered.append((names, known))
        numbers: Ints = known[codes]
        return numbers

    def _number(self, nic: str | None) -> int:
        if nic is None:
            return -1
        if nic not in self._nics and len(self._nics) >= _MAX_NICS:
            return -1
        return self._nics.setdefault(nic, len(self._nics))

    def queue(self, hop: str, now_ns: int, dscp: int | None = None) -> LinkQueue:
        """The queue of a link by the probes over it; those of class `dscp` alone, where there are any."""
        paths = self._routes.over(hop, now_ns)
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
        self._numbered.clear()
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


def _one_by_one(slot: Ints, message: Ints) -> list[Any]:
    """Which rows to enter at once: all, unless a path has rows in two messages."""
    if not slot.size:
        return []
    owner = np.zeros(int(slot.max()) + 2, np.int64)
    owner[slot] = message  # of slot −1 in its last element, which no path has
    if (owner[slot] == message)[slot >= 0].all():
        return [slice(None)]
    start, size, _ = runs(message)
    return [slice(first, first + n) for first, n in zip(start.tolist(), size.tolist(), strict=True)]
