"""How long marked probes waited: their round trips against those of their sessions while nothing was marked.

A mark says that a queue stood (RFC 3168, section 5). Where marked probes take as long as ever, none did, and the port
that marks them has its threshold far too low. A round trip is (t4 − t1) − (t3 − t2): no clock has to be known.

What is normal is taken when a session is first marked, and kept until nothing of it has been marked for a minute, so a
queue does not become normal by standing for long. A session that is marked from its beginning has no such time; other
paths between its two NICs, of which nothing was ever marked, stand in for it. Where there are none either, as with a
queue at a NIC that stands from the very start, nothing is known of its waits.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.bins import RingBins
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_MS, NS_PER_S, Bools, Int64s

_BINS: Final = 4
_WIDTH_NS: Final = 500 * NS_PER_MS
"""Marked probes of the last 2 s are looked at."""
_KNOWN: Final = 50
"""Windows without a mark after which a session's round trip is known."""
_SURELY_UNMARKED: Final = 150
"""Windows without a mark after which a path is taken to have no queue: of 5 % marks it would have missed all with a
probability of 0.0005."""
_APART: Final = 60 * NS_PER_S // _WIDTH_NS
"""Marks of one session that are further apart than this, in bins, are of two occasions."""
_MOST_US: Final = 200.0
"""A single wait counts as no more, so that one stamp that came late does not decide."""
_LEAST: Final = 20
_Z: Final = 3.0
HARDLY_US: Final = 10.0
"""Thresholds as they should be lie beyond: 5 % are marked after some 30 µs of queue at 100 Gbit/s and above."""


class Waits(NamedTuple):
    """Of marked probes on some directed paths."""

    timed: int
    """Probes whose wait is known."""
    mean_us: float
    """Mean round trip less the normal one."""
    error_us: float
    """Standard error of that mean."""
    normal_us: float
    """Mean of the normal round trips, of as many probes."""

    @property
    def hardly(self) -> bool:
        """Whether they surely took no longer than ever (a way that became shorter is no evidence)."""
        return abs(self.mean_us) + _Z * self.error_us < HARDLY_US

    @property
    def surely(self) -> bool:
        """Whether they surely waited."""
        return self.mean_us - _Z * self.error_us > HARDLY_US


class MarkedWaits:
    """Waits of marked probes of the last 2 s, on every directed path."""

    def __init__(self, sessions: Sessions, delays: DelayBaselines) -> None:
        self.sessions, self.delays = sessions, delays
        self.window = RingBins(_BINS, _WIDTH_NS, ("timed", "tenths", "squares"))
        """Probes timed, the sum of their waits in tenths of a µs, and of the squares of their waits in µs²."""
        self.table = Table({"marked_bin": np.int64(-1), "normal_ns": np.float64(np.nan)})
        """Per session: number of the bin of time in which it was last marked, in either direction, −1: never; its round
        trip without marks."""

    def ensure(self) -> None:
        """Have a row for every session, and for both directions of it."""
        self.window.ensure(2 * self.sessions.count)
        self.table.ensure(self.sessions.count)

    def forget(self, slots: Int64s) -> None:
        """Start anew for these sessions."""
        self.window.reset(np.concatenate([2 * slots, 2 * slots + 1]))
        self.table.reset(slots)

    def take(self, batch: pa.RecordBatch, slots: Int64s, marked: tuple[Bools, Bools], at_ns: int) -> None:
        """Take the marked ones of probe rows.

        Parameters
        ----------
        batch : RecordBatch
            Of ``sdf.raw.probe.v1``.
        slots : (rows,) int64
            Session of each; −1: refused.
        marked : two of (rows,) bool
            Arrived with CE at the reflector, at the sender.
        at_ns : int
            Bus time.
        """
        self.window.advance(at_ns)
        mine = np.flatnonzero((marked[0] | marked[1]) & (slots >= 0))
        if not mine.size:
            return
        self._note(np.unique(slots[mine]))
        t1, t2, t3, t4 = (columns.instants(batch, f"t{i}_ns")[mine] for i in (1, 2, 3, 4))
        whole = (t2 != ABSENT_NS) & (t3 != ABSENT_NS) & (t4 != ABSENT_NS)
        trip_ns = np.where(whole, (t4 - t1) - (t3 - t2), 0).astype(np.float64)
        wait_us = np.clip((trip_ns - self.table["normal_ns"][slots[mine]]) / 1e3, -_MOST_US, _MOST_US)
        known = whole & np.isfinite(wait_us)
        for direction, ce in enumerate(marked):
            rows = known & ce[mine]
            number = 2 * slots[mine][rows] + direction
            self.window.add("timed", number)
            self.window.add("tenths", number, np.rint(10 * wait_us[rows]).astype(np.int32))
            self.window.add("squares", number, np.rint(wait_us[rows] ** 2).astype(np.int32))

    def _note(self, slots: Int64s) -> None:
        """Sessions that are marked now; what their round trip was is asked when the marks begin."""
        last = self.table["marked_bin"][slots]
        begun = slots[(last < 0) | (self.window.now_bin - last > _APART)]
        if begun.size:
            usual = self.delays.round_trip
            self.table["normal_ns"][begun] = np.where(usual.count[begun] >= _KNOWN, usual.mean[begun], np.nan)
        self.table["marked_bin"][slots] = self.window.now_bin

    def ask_neighbours(self, number: Int64s) -> None:
        """Give these directed paths whose normal is not known the least one of unmarked paths between their NICs."""
        unknown = np.unique(number // 2)
        unknown = unknown[np.isnan(self.table["normal_ns"][unknown])]
        if not unknown.size:
            return
        t, usual, count = self.sessions.table, self.delays.round_trip, self.sessions.count
        low, high = np.minimum(t["src"], t["dst"])[:count], np.maximum(t["src"], t["dst"])[:count]
        pair = (low << 32) | (high << 8) | t["transport"][:count]
        beside = (usual.count[:count] >= _SURELY_UNMARKED) & (self.table["marked_bin"][:count] < 0)
        beside &= ~self.delays.cusum.on[: 2 * count].reshape(-1, 2).any(axis=1) & np.isin(pair, pair[unknown])
        keys, which = np.unique(pair[beside], return_inverse=True)
        least = np.full(keys.size + 1, np.nan)
        np.fmin.at(least, which, usual.mean[:count][beside])
        at = np.searchsorted(keys, pair[unknown])
        found = np.append(keys, -1)[at] == pair[unknown]
        self.table["normal_ns"][unknown[found]] = least[at[found]]

    def of(self, number: Int64s, now_ns: int) -> Waits | None:
        """Waits of marked probes on these directed paths; None: too few are known."""
        self.window.advance(now_ns)
        timed = self.window.totals("timed")[number]
        n = int(timed.sum())
        if n < _LEAST:
            return None
        mean = float(self.window.totals("tenths")[number].sum()) / 10 / n
        variance = max(float(self.window.totals("squares")[number].sum()) / n - mean * mean, 0.0)
        normal_ns = float(np.nansum(self.table["normal_ns"][number // 2] * timed)) / n
        return Waits(n, mean, float(np.sqrt(variance / n)), normal_ns / 1e3)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"window": self.window.snapshot(), "table": self.table.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.window.restore(state["window"])
        self.table.restore(state["table"])
