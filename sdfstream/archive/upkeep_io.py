"""The archive's upkeep, beside the writer: roll-ups are finished, raw rows around findings copied before they expire.

A thread of its own with a handle of its own; several processes may do the same, and again after a crash.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import EngineError
from sdfstream.archive.retention import Retention
from sdfstream.archive.sqltext import literal
from sdfstream.archive.upkeep import (
    FINISHERS,
    HOUR_NS,
    FindingStatement,
    Finisher,
    RetainedWindow,
    copies,
    counts,
    due,
    window,
    worst_paths,
)
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.archive")
_PASS_S = 600.0
"""Longest pass, after which the thread counts as starved."""
_SEEN_AGAIN_NS = 120 * NS_PER_S
"""Rows enter the archive out of order by less than this."""


class Upkeep:
    """One pass after another over an archive; `run` is one pass.

    Counters: ``finished.<table>`` (spans), ``kept.probes`` and ``kept.windows`` (rows), ``kept.findings``
    (statements), ``unscoped`` (statements of whose subject no path is known), ``failed`` (passes).
    """

    def __init__(self, engine: Engine, retention: Retention, counters: Counters | None = None) -> None:
        self._engine = engine
        self._retention = retention
        self.counters = counters or Counters("upkeep")
        self._seen_ns = {f.table: 0 for f in FINISHERS}
        self._pending: dict[str, set[int]] = {}
        self._unscoped: set[tuple[str, str]] = set()

    def run(self) -> None:
        """Finish spans that are over, and copy rows around findings.

        Raises
        ------
        EngineError
            The engine refused; the next pass takes up what is left.
        """
        for finisher in FINISHERS:
            self._finish(finisher)
        if self._retention.raw_hours is not None:
            self._copy_around_findings()

    # -- roll-ups -----------------------------------------------------------------------------------------------

    def _finish(self, f: Finisher) -> None:
        since_ns = self._seen_ns[f.table]
        ((touched, newest_ns),) = self._engine.rows(f.touched, {"since_ns": max(0, since_ns - _SEEN_AGAIN_NS)})
        if not touched:
            return
        pending = self._pending.get(f.table)
        if pending is None:
            pending = self._first(f, touched)
        elif newest_ns > since_ns:
            pending |= set(touched)
        for from_ns, to_ns in due(pending, f.span_ns, f.most):
            self._engine.command(f.sql, {"from_ns": from_ns, "to_ns": to_ns})
            pending -= set(range(from_ns, to_ns, f.span_ns))
            self.counters.add("finished", f.table, (to_ns - from_ns) // f.span_ns)
        self._pending[f.table], self._seen_ns[f.table] = pending, newest_ns

    def _first(self, f: Finisher, touched: list[int]) -> set[int]:
        """Spans to roll up at the start: those not finished, and the newest finished ones again, for late rows.

        The oldest spans may have lost rows to retention; those among them that are finished stay as they are.
        """
        ((finished,),) = self._engine.rows(f.finished, {"from_ns": touched[0]})
        again = {at for at in finished[-3:] if at > touched[min(2, len(touched) - 1)]}
        return (set(touched) - set(finished)) | again

    # -- rows around findings -----------------------------------------------------------------------------------

    def _copy_around_findings(self) -> None:
        ((newest_ns,),) = self._engine.rows("SELECT toUnixTimestamp64Nano(max(bus_at)) FROM raw_probe")
        for statement in self._statements(newest_ns):
            wanted = window(statement, self._retention)
            if wanted is None:
                if (statement.finding, statement.status) not in self._unscoped:
                    self._unscoped.add((statement.finding, statement.status))
                    self.counters.add("unscoped")
            elif wanted.to_ns + 2 * NS_PER_S < newest_ns:
                self._copy(wanted)

    def _statements(self, newest_ns: int) -> list[FindingStatement]:
        """The opening and resolving messages of findings whose rows are not copied yet."""
        hours = self._retention.raw_hours
        back_ns = round((hours if hours is not None else 24.0) * HOUR_NS)
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
            {"from_ns": max(0, newest_ns - back_ns)},
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
        self._thread = threading.Thread(target=self._work, name="archive-upkeep", daemon=True)
        self._thread.start()

    @classmethod
    def start(cls, target: str, retention: Retention) -> UpkeepThread:
        """Start upkeep of the archive at `target`, which was opened (and so migrated) before."""
        return cls(Engine.open(target), retention)

    def close(self) -> None:
        """Stop after the statement that runs."""
        self._stop.set()
        self._thread.join()
        self._engine.close()

    def _work(self) -> None:
        while not self._stop.wait(self._every_s):
            self._helper.begin(time.monotonic())
            try:
                self._upkeep.run()
            except Exception as error:  # a pass takes up what the last one left, whatever it met
                self.counters.add("failed")
                self.counters.troubles.begin("pass", f"roll-ups are not finished: {error or type(error).__name__}")
                if not isinstance(error, EngineError):
                    _log.error("a pass of the archive's upkeep failed", exc_info=error)
            else:
                self.counters.troubles.end("pass")
            self._helper.rest()
