"""From corrected rows to published windows of one-way delay."""

from __future__ import annotations

from typing import Any

import numpy as np

from sdfstream.records.message import Output
from sdfstream.records.units import NS_PER_S, Bools, Float64s, Int64s
from sdfstream.stats import Counters
from sdfstream.sync.belief import Beliefs
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.correct import Rows
from sdfstream.sync.delayrows import DelayRows
from sdfstream.sync.floors import excess
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.owd import Delays, Windows
from sdfstream.sync.roster import Roster

REWIND_NS = 10 * NS_PER_S


class DelayBook:
    """Open windows on the reference clock's time line, and their way out.

    A delay whose error bar is too wide is withheld, and one of a row that is too old to be shown as present; both are
    counted. Losses and CE marks of a withheld row are kept: they need no clock.
    """

    def __init__(self, config: SyncConfig, counters: Counters) -> None:
        self._config = config
        self._counters = counters
        self._windows = Windows()
        self._rows = DelayRows()

    def reference_ns(self, b: Beliefs, at: Float64s | float) -> Any:
        """Reference clock's reading at internal time `at`, ns since the epoch."""
        return np.rint(at + b.place.ahead(at)).astype(np.int64) + (b.place.base_ns + b.origin_ns)

    def put(self, x: Exchanges, rows: Rows, path: Int64s, err: Float64s, reference_ns: Int64s, now_ns: int) -> None:
        """Rows wait for their window. `now_ns`: the present on the reference clock."""
        c = self._config
        old = now_ns - reference_ns > c.max_late_ns
        wide = err > c.publish_err_ns
        self._counters.add("owd-withheld", "unsynced", int((wide & ~x.lost & ~old).sum()))
        self._counters.add("owd-withheld", "stale", int(old.sum()))
        hold: Bools = wide | old
        fwd, rev = rows.fwd, rows.rev
        if hold.any():
            fwd, rev = np.where(hold, np.nan, fwd), np.where(hold, np.nan, rev)
        window = reference_ns // c.window_ns
        late = (
            window <= self._windows.closed
            if self._windows.closed is not None
            else np.zeros(window.size, dtype=np.bool_)
        )
        self._counters.add("owd-late", n=int((late & ~hold).sum()))
        self._windows.put(
            Delays(window, path, fwd, rev, err, x.lost & ~old, x.ce_fwd & ~old, x.ce_rev & ~old),
            now_ns // c.window_ns,
        )

    def close(self, by_ns: int, roster: Roster) -> list[Output]:
        """Close the windows that ended by `by_ns`."""
        until = by_ns // self._config.window_ns - 1
        if self._windows.closed is not None and until <= self._windows.closed:
            return []
        return self._publish(until, roster)

    def close_all(self, roster: Roster) -> list[Output]:
        """Close every window that holds rows."""
        newest = self._windows.newest()
        return [] if newest is None else self._publish(newest, roster)

    def rewound(self, now_ns: int, roster: Roster) -> list[Output]:
        """The reference may have jumped: far back, and windows are numbered afresh rather than stand still for long."""
        closed = self._windows.closed
        if closed is None or now_ns > closed * self._config.window_ns - REWIND_NS:
            return []
        out = self.close_all(roster)
        self._windows.closed = None
        self._counters.add("reference-rewound")
        return out

    def _publish(self, until: int, roster: Roster) -> list[Output]:
        c = self._config
        out: list[Output] = []
        for w in self._windows.close(until):
            if not w.path.size:
                continue
            over = excess(roster.paths, w.path, w.dir, w.low, w.p50, w.window * c.window_ns, c.floor_memory_ns)
            out += self._rows.outputs(w, over, roster.registry.routes, roster.registry.paths.keys, c.window_ns)
            self._counters.add("published", "owd", int(w.path.size))
        return out

    def renumber(self, old_paths: Int64s) -> None:
        """Paths got new numbers: `old_paths` are the kept ones' old numbers."""
        self._windows.renumber(lambda path: np.searchsorted(old_paths, path))

    def state(self) -> dict[str, Any]:
        """Everything, as plain values and arrays."""
        return self._windows.state()

    def load(self, state: dict[str, Any]) -> None:
        """Take up what `state` gave."""
        self._windows.load(state)
