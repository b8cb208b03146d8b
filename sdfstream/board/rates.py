"""Throughput of jobs and queue pairs, second by second of reference time, from ``sdf.derived.qp.v1``.

Sums per whole second in rings: of a job the last ten minutes, of a queue pair the last minute. Bounded; windows that
are shed, or come too late for their ring, are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records import columns
from sdfstream.records.units import NS_PER_S, Float64s, Int64s
from sdfstream.stats import Counters

JOB_SECONDS: Final = 600
QP_SECONDS: Final = 60
MOST_JOBS: Final = 1_000
MOST_QPS: Final = 10_000
"""Bound on memory: 10 000 × 60 s × 12 sums × 8 bytes = 58 MB, reached only with so many queue pairs."""
MOST_IN_WINDOW: Final = 2.0**40
"""Of anything counted in a row: a terabyte in a window of a tenth of a second is no queue pair's."""
FORGET_NS: Final = 900 * NS_PER_S
"""A job or queue pair without a window for this long gives its row to a new one."""

SUMS: Final = (
    "bytes",
    "busy_ns",
    "chunks",
    "packets",
    "ce",
    "ce_of",
    "resent",
    "resent_of",
    "owd",
    "owd_of",
    "err",
    "err_of",
)
"""ce_of, resent_of: packets of windows that know ce, retransmits. owd, err: sums weighted by the chunks in …_of."""
_COUNTS: Final = ("bytes", "busy_ns", "chunks", "packets", "ce", "resent")


class SecondRing:
    """Sums by whole second for numbered rows, the newest `seconds` of each."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds
        self._sums = np.zeros((0, seconds, len(SUMS)))
        self._stamp: Int64s = np.full((0, seconds), -1, np.int64)
        """The second that each slot holds; −1: none."""

    def add(self, rows: Int64s, seconds: Int64s, values: Float64s) -> int:
        """Add `values`, (n, sums), to (row, second); returns how many were too old for the ring."""
        self._grow(int(rows.max(initial=-1)) + 1)
        slots = seconds % self.seconds
        before = self._stamp[rows, slots]
        np.maximum.at(self._stamp, (rows, slots), seconds)
        newer = self._stamp[rows, slots] > before
        self._sums[rows[newer], slots[newer]] = 0.0
        current = seconds == self._stamp[rows, slots]
        np.add.at(self._sums, (rows[current], slots[current]), values[current])
        return int((~current).sum())

    def series(self, row: int) -> Series:
        """The sums of `row`, oldest second first."""
        if row >= len(self._stamp):
            return Series(np.empty(0, np.int64), np.empty((0, len(SUMS))))
        stamp = self._stamp[row]
        held = np.flatnonzero(stamp > max(stamp.max(initial=-1) - self.seconds, -1))
        order = held[np.argsort(stamp[held])]
        return Series(stamp[order], self._sums[row, order])

    def clear(self, row: int) -> None:
        """Empty `row`, for its next owner."""
        if row < len(self._stamp):
            self._stamp[row] = -1

    def _grow(self, rows: int) -> None:
        more = rows - len(self._stamp)
        if more > 0:
            more = max(more, len(self._stamp))
            self._sums = np.concatenate([self._sums, np.zeros((more, self.seconds, len(SUMS)))])
            self._stamp = np.concatenate([self._stamp, np.full((more, self.seconds), -1, np.int64)])


@dataclass(frozen=True, slots=True)
class Series:
    """Sums of one job or queue pair, second by second; a second in which it had nothing to send is absent."""

    seconds: Int64s
    sums: Float64s
    """(n, sums), columns as `SUMS`."""

    def column(self, name: str) -> Float64s:
        """One of `SUMS`."""
        found: Float64s = self.sums[:, SUMS.index(name)]
        return found

    def between(self, first: int, end: int) -> Series:
        """Seconds from `first` up to, not including, `end`."""
        chosen = (self.seconds >= first) & (self.seconds < end)
        return Series(self.seconds[chosen], self.sums[chosen])


class RowIndex:
    """Row numbers of names: at most `most`; the name unseen for longest is replaced once `FORGET_NS` are over."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.row: dict[Any, int] = {}
        self.seen_at_ns: dict[Any, int] = {}
        """In order of the last window, bus time."""

    def of(self, name: Any, at_ns: int) -> tuple[int, bool]:
        """(row of `name`, whether the row is new); (−1, False): all rows are in use."""
        fresh = name not in self.row
        if fresh and len(self.row) >= self._most:
            oldest = next(iter(self.seen_at_ns))
            if at_ns - self.seen_at_ns[oldest] < FORGET_NS:
                return -1, False
            del self.seen_at_ns[oldest]
            self.row[name] = self.row.pop(oldest)
        elif fresh:
            self.row[name] = len(self.row)
        else:
            del self.seen_at_ns[name]
        self.seen_at_ns[name] = at_ns
        return self.row[name], fresh


class RateTable:
    """Sums per second of every job and queue pair.

    Notes
    -----
    Counters: ``shed`` (jobs, qps: no room), ``late`` (windows too old for the ring), ``refused`` (qp.null-name,
    qp.range).
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._jobs, self._qps = RowIndex(MOST_JOBS), RowIndex(MOST_QPS)
        self._job_ring, self._qp_ring = SecondRing(JOB_SECONDS), SecondRing(QP_SECONDS)
        self._path: dict[tuple[str, str], tuple[int, int]] = {}
        """(job, qp) → (window start, source port) of its newest window."""

    def take(self, batch: pa.RecordBatch, bus_at_ns: int) -> None:
        """Take the rows of one message.

        Raises
        ------
        FormatError
            The batch is not what the topic promises.
        """
        at_ns = columns.instants(batch, "at_ns")
        jobs, qps = _names(batch, "job"), _names(batch, "qp")
        good = np.array([j is not None and q is not None for j, q in zip(jobs, qps, strict=True)], bool)
        self._counters.add("refused", "qp.null-name", int((~good).sum()))
        values = _values(batch)
        sane = _are_sane(values)
        self._counters.add("refused", "qp.range", int((good & ~sane).sum()))
        good &= sane
        paths = columns.values(batch, "path").tolist()
        job_rows = np.full(len(at_ns), -1, np.int64)
        qp_rows = np.full(len(at_ns), -1, np.int64)
        for i in np.flatnonzero(good).tolist():
            job, qp = str(jobs[i]), str(qps[i])
            job_rows[i] = self._row(self._jobs, self._job_ring, job, bus_at_ns, "jobs")
            qp_rows[i] = self._row(self._qps, self._qp_ring, (job, qp), bus_at_ns, "qps")
            if qp_rows[i] >= 0 and int(at_ns[i]) >= self._path.get((job, qp), (0, 0))[0]:
                self._path[job, qp] = int(at_ns[i]), paths[i]
        if len(self._path) > MOST_QPS:
            self._path = {name: path for name, path in self._path.items() if name in self._qps.row}
        seconds = at_ns // NS_PER_S
        for ring, rows in ((self._job_ring, job_rows), (self._qp_ring, qp_rows)):
            has_row = rows >= 0
            late = ring.add(rows[has_row], seconds[has_row], values[has_row])
            self._counters.add("late", "qp-window", late if ring is self._job_ring else 0)

    def job(self, job: str) -> Series:
        """Sums over all queue pairs of the job."""
        return self._job_ring.series(self._jobs.row.get(job, len(self._jobs.row)))

    def qps(self, job: str) -> dict[str, Series]:
        """Sums of each queue pair of the job."""
        return {qp: self._qp_ring.series(row) for (owner, qp), row in self._qps.row.items() if owner == job}

    def path(self, job: str, qp: str) -> int | None:
        """The source port of the queue pair's newest window."""
        return self._path.get((job, qp), (0, None))[1]

    def last_received_at_ns(self, job: str) -> int | None:
        """Bus time of the job's last window."""
        return self._jobs.seen_at_ns.get(job)

    def names(self) -> list[str]:
        """Jobs with windows."""
        return list(self._jobs.row)

    def _row(self, index: RowIndex, ring: SecondRing, name: Any, at_ns: int, what: str) -> int:
        row, fresh = index.of(name, at_ns)
        if row < 0:
            self._counters.add("shed", what)
        elif fresh:
            ring.clear(row)
        return row


def _values(batch: pa.RecordBatch) -> Float64s:
    """The columns of `SUMS` for every row."""
    chunks = columns.values(batch, "n").astype(np.float64)
    packets = columns.values(batch, "packets").astype(np.float64)
    ce, resent = _counts(batch, "ce"), _counts(batch, "retransmits")
    owd, err = (columns.filled(batch, name, np.nan).astype(np.float64) for name in ("owd_p50_ns", "err_ns"))
    made = {
        "bytes": columns.values(batch, "bytes").astype(np.float64),
        "busy_ns": columns.values(batch, "window_ns").astype(np.float64),
        "chunks": chunks,
        "packets": packets,
        "ce": np.nan_to_num(ce),
        "ce_of": np.where(np.isnan(ce), 0.0, packets),
        "resent": np.nan_to_num(resent),
        "resent_of": np.where(np.isnan(resent), 0.0, packets),
        "owd": np.nan_to_num(owd) * chunks,
        "owd_of": np.where(np.isnan(owd), 0.0, chunks),
        "err": np.nan_to_num(err) * chunks,
        "err_of": np.where(np.isnan(err), 0.0, chunks),
    }
    stacked: npt.NDArray[np.float64] = np.stack([made[name] for name in SUMS], axis=1)
    return stacked


def _are_sane(values: Float64s) -> npt.NDArray[np.bool_]:
    """Which rows of (n, sums) count nothing that no window can have: their sums stay whole numbers of 64 bits."""
    counts = values[:, [SUMS.index(name) for name in _COUNTS]]
    inside = (counts >= 0) & (counts <= MOST_IN_WINDOW)
    sane: npt.NDArray[np.bool_] = np.logical_and.reduce(inside, axis=1) & np.isfinite(values).all(axis=1)
    return sane


def _counts(batch: pa.RecordBatch, name: str) -> Float64s:
    """A nullable count, NaN where it is null or the column is absent (NaN does not go into a column of integers)."""
    low, high = (columns.filled(batch, name, fill).astype(np.float64) for fill in (0, 1))
    return np.where(low == high, low, np.nan)


def _names(batch: pa.RecordBatch, name: str) -> list[str | None]:
    codes, names = columns.names(batch, name)
    return [names[c] if c >= 0 else None for c in codes.tolist()]
