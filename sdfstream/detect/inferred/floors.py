"""The least round trip of every session, of the last ten to twenty minutes: what the way itself takes, without queues.

A round trip is (t4 − t1) − (t3 − t2): each difference is of one clock, so neither clock has to be known.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.detect.sessions import Sessions
from sdfstream.numeric.proximity import least_by_pair
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, NS_PER_S, Float64s, Int64s

_EPOCH_NS: Final = 600 * NS_PER_S


class RoundTripFloors:
    """Least round trips, ns; infinite where none is known."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.table = Table({"now": np.float64(np.inf), "before": np.float64(np.inf), "epoch": np.int64(-1)})
        """Per session: the least round trip of the epoch, and of the one before."""

    def take(self, batch: pa.RecordBatch, slots: Int64s, at_ns: int) -> None:
        """Take probe rows of these sessions (−1: refused) that entered the bus at `at_ns`.

        Raises
        ------
        FormatError
            A column is of a wrong type.
        """
        t1, t2, t3, t4 = (columns.instants(batch, f"t{i}_ns") for i in (1, 2, 3, 4))
        whole = (slots >= 0) & (t2 != ABSENT_NS) & (t3 != ABSENT_NS) & (t4 != ABSENT_NS)
        trip_ns = ((t4 - t1) - (t3 - t2)).astype(np.float64)
        good = whole & (trip_ns > 0)  # a clock that steps in mid-exchange makes nonsense
        if not good.all():
            slots, trip_ns = slots[good], trip_ns[good]
        self.table.ensure(self.sessions.count)
        epoch = at_ns // _EPOCH_NS
        former = slots[self.table["epoch"][slots] != epoch]
        if former.size:
            self._turn(np.unique(former), epoch)
        np.minimum.at(self.table["now"], slots, trip_ns)

    def _turn(self, former: Int64s, epoch: int) -> None:
        """Begin an epoch for these sessions, each given once, which have an earlier one."""
        t = self.table
        t["before"][former] = np.where(t["epoch"][former] == epoch - 1, t["now"][former], np.inf)
        t["now"][former], t["epoch"][former] = np.inf, epoch

    def forget(self, slots: Int64s) -> None:
        """Start anew for these sessions."""
        self.table.reset(slots)

    def pairs(self) -> tuple[Int64s, Int64s, Float64s]:
        """Both NICs of each pair that is probed, the lower number first, and their least round trip."""
        self.table.ensure(self.sessions.count)
        n = self.sessions.count
        src, dst = self.sessions.table["src"][:n], self.sessions.table["dst"][:n]
        least = np.minimum(self.table["now"][:n], self.table["before"][:n])
        known = np.isfinite(least) & (src >= 0)
        return least_by_pair(src[known], dst[known], least[known])

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return self.table.snapshot()

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.table.restore(state)
