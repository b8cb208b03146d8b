"""The archive's upkeep, beside the writer: roll-ups are finished, raw rows around findings copied, then old rows go.

A thread of its own with a handle of its own; several processes may do the same, and again after a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sdfstream.archive.config import LIVE
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import EngineError
from sdfstream.archive.retention import Retention
from sdfstream.archive.sqltext import literal
from sdfstream.archive.upkeep.around_findings import (
    FindingStatement,
    RetainedWindow,
    copies,
    counts,
    window,
    worst_paths,
)
from sdfstream.archive.upkeep.expiry_io import Expiry, newest_ns
from sdfstream.archive.upkeep.rollups_io import RollUps
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.archive")
_PASS_S = 600.0
"""Longest pass, after which the thread counts as starved."""
_BEHIND_NS = 60 * NS_PER_S
"""Rows of one topic are inserted behind those of another by less than this."""
_BESIDE_NS = 2 * LIVE.few_age_ms * NS_PER_MS
"""Rows of one topic are inserted behind those of another by less than this while both have some."""


class Upkeep:
    """One pass after another over an archive; `run` is one pass.

    Counters: those of `RollUps` and `Expiry`, ``kept.probes`` and ``kept.windows`` (rows), ``kept.findings``
    (statements), ``unscoped`` (statements of whose subject no path is known), ``failed`` (passes).
    """

    def __init__(self, engine: Engine, retention: Retention, counters: Counters | None = None) -> None:
        self._engine = engine
        self._retention = retention
        self.counters = counters or Counters("upkeep")
        self._roll_ups = RollUps(engine, self.counters)
        self._expiry = Expiry(engine, self._roll_ups, self.counters)
        self._unscoped: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Finish spans that are over, copy rows around findings, drop what is too old: in this order.

        Raises
        ------
        EngineError
            The engine refused; the next pass takes up what is left.
        """
        self._roll_ups.finish()
        now_ns = newest_ns(self._engine)
        if self._retention.raw_hours is not None:
            self._copy_around_findings(now_ns)
        self._expiry.run(now_ns)

    # -- rows around findings -----------------------------------------------------------------------------------

    def _copy_around_findings(self, now_ns: int) -> None:
        """Copy rows of the statements whose rows are all there: newer ones are, or would be by now."""
        sql = "SELECT toUnixTimestamp64Nano(min(bus_at)), toUnixTimestamp64Nano(max(bus_at)) FROM raw_probe"
        ((oldest_ns, newest_ns),) = self._engine.rows(sql)
        newest_ns = max(newest_ns, now_ns - _BEHIND_NS)
        for statement in self._statements(oldest_ns):
            wanted = window(statement, self._retention)
            if wanted is None:
                if (statement.finding, statement.status) not in self._unscoped:
                    self._unscoped.add((statement.finding, statement.status))
                    self.counters.add("unscoped")
            elif wanted.to_ns + _BESIDE_NS < newest_ns:
                self._copy(wanted)

    def _statements(self, oldest_ns: int) -> list[FindingStatement]:
        """The opening and resolving messages of findings whose rows are not copied yet, while there may be some."""
        around_ns = round(self._retention.around_minutes * 60 * NS_PER_S)
        rows = self._engine.rows(
            """
            SELECT f.id, f.status, any(f.subject_type), any(f.subject_id),
                   toUnixTimestamp64Nano(min(f.since_at)), toUnixTimestamp64Nano(min(f.bus_at)) AS said_ns
            FROM event_finding AS f
            WHERE f.bus_at > fromUnixTimestamp64Nano({from_ns:Int64}, 'UTC') AND f.status IN ('open', 'resolved')
                AND (f.id, f.status) NOT IN (SELECT finding, status FROM kept_window)
            GROUP BY f.id, f.status
            ORDER BY said_ns
            """,
            {"from_ns": max(0, oldest_ns - around_ns)},
        )
        return [
            FindingStatement(i, status, kind or "", name or "", since, statement)
            for i, status, kind, name, since, statement in rows
        ]

    def _copy(self, w: RetainedWindow) -> None:
        span = {"from_ns": w.from_ns, "to_ns": w.to_ns}
        found = self._engine.rows(worst_paths(w), w.parameters | span)
        paths: list[Any] = found[: self._retention.kept_paths]
        probes = windows = 0
        if paths:
            ((probes, windows),) = self._engine.rows(counts(paths), span)
            for sql in copies(paths):
                self._engine.command(sql, span)
        statement = w.statement
        values = [statement.finding, statement.status, f"{statement.subject_type} {statement.subject}"]
        self._engine.command(
            "INSERT INTO kept_window (finding, status, subject, from_at, to_at, paths, left_out, probes, windows)"
            f" SELECT {', '.join(map(literal, values))}, fromUnixTimestamp64Nano({{from_ns:Int64}}, 'UTC'),"
            f" fromUnixTimestamp64Nano({{to_ns:Int64}}, 'UTC'), {len(paths)}, {len(found) - len(paths)},"
            f" {probes}, {windows}",
            span,
        )
        self.counters.add("kept", "findings")
        self.counters.add("kept", "probes", probes)
        self.counters.add("kept", "windows", windows)


class UpkeepThread:
    """`Upkeep` every `Retention.every_s`; `start`, `close`."""

    def __init__(self, engine: Engine, retention: Retention) -> None:
        self.counters = Counters("upkeep")
        self._engine = engine
        self._every_s = retention.every_s
        self._upkeep = Upkeep(engine, retention, self.counters)
        self._helper = self.counters.troubles.helper("archive-upkeep", _PASS_S)
        self._stop = threading.Event()
        self._last_pass = False
        self._thread = threading.Thread(target=self._work, name="archive-upkeep", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, target: str, retention: Retention) -> UpkeepThread:
        """Start upkeep of the archive at `target`, which was opened (and so migrated) before."""
        return cls(Engine.open(target), retention)

    def close(self, *, last_pass: bool = False) -> None:
        """Stop after the pass that runs, or after one more: for an archive that ends with this process."""
        self._last_pass = last_pass
        self._stop.set()
        self._thread.join()
        self._engine.close()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            self._pass()
        if self._last_pass:
            self._pass()

    def _pass(self) -> None:
        self._helper.begin(time.monotonic())
        try:
            self._upkeep.run()
        except Exception as error:  # a pass takes up what the last one left, whatever it met
            self.counters.add("failed")
            words = f"roll-ups are not finished, and old rows stay: {error or type(error).__name__}"
            self.counters.troubles.begin("pass", words)
            if not isinstance(error, EngineError):
                _log.error("a pass of the archive's upkeep failed", exc_info=error)
        else:
            self.counters.troubles.end("pass")
        self._helper.rest()
