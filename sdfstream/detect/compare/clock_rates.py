"""Clocks whose rate jumped: an oscillator that fails, or a daemon that slews. Their time stays known, but not for long.

The rate of a clock (its skew) wanders by parts in 10⁸ a second, and by some 10⁻⁶ in a day. What differs from its own
slow mean by `_LIMIT_PPB` for a while is none of that. Rates are relative: when the reference's jumps all others' seem
to, so what the clocks have in common (the median difference, the reference's own being 0) is no jump of theirs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.detect.sessions import NameIndex
from sdfstream.numeric.table import Table
from sdfstream.records import columns
from sdfstream.records.hostclock import UTC
from sdfstream.records.units import ABSENT_NS, NS_PER_S

_MOST: Final = 65_536
_MOST_PPB: Final = 1e9
"""Figures beyond are none: a clock that runs twice as fast."""
_LIMIT_PPB: Final = 20_000.0
"""Beyond what sync is wrong by while it learns a clock anew."""
_ALPHA: Final = 0.1
"""Of the slow mean, for each evaluation (half a second): five seconds."""
_SETTLED: Final = 20
"""Evaluations that a mean needs before anything is held against it."""
_LASTS_NS: Final = NS_PER_S
_FRESH_NS: Final = 3 * NS_PER_S
_USUAL_NS: Final = 120 * NS_PER_S
"""A rate that has been kept for so long is the usual one."""
_LEAST_CLOCKS: Final = 3
"""Of two nobody knows whose it was."""


class ClockRates:
    """Skew of every clock against its slow mean."""

    def __init__(self) -> None:
        self.names = NameIndex(_MOST)
        self.table = Table(
            {
                "seen_ns": np.int64(ABSENT_NS),
                "skew_ppb": np.float64(0.0),
                "mean_ppb": np.float64(0.0),
                "means": np.int64(0),
                "away_since_ns": np.int64(ABSENT_NS),
                "off_since_ns": np.int64(ABSENT_NS),
                "off_ppb": np.float64(0.0),
            }
        )
        """Per clock: bus time of its last row, its skew, the slow mean, evaluations that this rests on; bus time since
        when the skew is away from the mean, since when by more than what all have in common, and by how much."""

    def take(self, batch: pa.RecordBatch, at_ns: int) -> None:
        """Take causal rows of a ``sdf.state.clock.v1`` message."""
        clock, names = columns.names(batch, "clock")
        kind, kinds = columns.names(batch, "kind")
        causal = np.array([k != "smoothed" for k in kinds] + [True])[kind]
        known = np.array([self.names.add(n) if n != UTC else -1 for n in names] + [-1], np.int64)[clock]
        skew = columns.values(batch, "skew_ppb").astype(np.float64)
        rows = np.flatnonzero(causal & (known >= 0) & (np.abs(skew) < _MOST_PPB))
        self.table.ensure(len(self.names))
        number, last = np.unique(known[rows][::-1], return_index=True)
        t = self.table
        t["seen_ns"][number], t["skew_ppb"][number] = at_ns, skew[rows[::-1][last]]

    def tick(self, now_ns: int) -> None:
        """Compare the newest rates with what was usual."""
        t = self.table
        fresh = (t["seen_ns"] != ABSENT_NS) & (now_ns - t["seen_ns"] < _FRESH_NS)
        for name, nothing in (("means", 0), ("away_since_ns", ABSENT_NS), ("off_since_ns", ABSENT_NS)):
            t[name][~fresh] = nothing
        here = np.flatnonzero(fresh)
        away, settled = t["skew_ppb"][here] - t["mean_ppb"][here], t["means"][here] >= _SETTLED
        assessed = settled & (int(settled.sum()) >= _LEAST_CLOCKS)
        own = away - (float(np.median(away[assessed])) if assessed.any() else 0.0)
        t["off_ppb"][here] = own
        far = np.abs(away) > _LIMIT_PPB / 2
        for name, holds in (("away_since_ns", far), ("off_since_ns", assessed & (np.abs(own) > _LIMIT_PPB))):
            since_ns = np.where(t[name][here] == ABSENT_NS, now_ns, t[name][here])
            t[name][here] = np.where(holds, since_ns, ABSENT_NS)
        anew = far & (~settled | (now_ns - t["away_since_ns"][here] > _USUAL_NS))
        gain = np.where(anew, 1.0, np.where(far, 0.0, np.maximum(_ALPHA, 1.0 / (t["means"][here] + 1))))
        t["mean_ppb"][here] += gain * away
        t["means"][here] = np.where(anew, 1, t["means"][here] + ~far)

    def jumped(self, now_ns: int) -> dict[str, tuple[int, float]]:
        """Clocks that have another rate than usual: since when (bus time), and by how much, ppb."""
        since_ns, off = self.table["off_since_ns"], self.table["off_ppb"]
        which = np.flatnonzero((since_ns != ABSENT_NS) & (now_ns - since_ns >= _LASTS_NS))
        return {self.names.list[i]: (int(since_ns[i]), float(off[i])) for i in which.tolist()}

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {"names": self.names.list, "table": self.table.snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.names.restore(state["names"])
        self.table.restore(state["table"])
