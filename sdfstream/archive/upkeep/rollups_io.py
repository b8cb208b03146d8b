"""Roll-ups by minute and hour: finished when their time is over, and before the rows that they are made of may go."""

from __future__ import annotations

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.upkeep.rollups import FINISHERS, Finisher, due
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

_SEEN_AGAIN_NS = 120 * NS_PER_S
"""Rows enter the archive out of order by less than this."""


class RollUps:
    """Finishes the spans of `rollups.FINISHERS`.

    Counters: ``finished.<table>`` (spans), ``too-late.<table>`` (finished spans that rows came for when others of
    theirs were gone: they stay as they are).
    """

    def __init__(self, engine: Engine, counters: Counters) -> None:
        self._engine = engine
        self._counters = counters
        self._seen_ns = {f.table: 0 for f in FINISHERS}
        self._pending: dict[str, set[int]] = {}

    def finish(self) -> None:
        """Finish every span that is over and has new rows.

        Raises
        ------
        EngineError
            The engine refused; the next call takes up what is left.
        """
        for finisher in FINISHERS:
            self._finish(finisher)

    def finish_before_drop(self, table: str, partition: str) -> None:
        """Finish, over or not, every span of the rows in `partition` of `table` that is not finished."""
        for f in FINISHERS:
            if f.made_of != table:
                continue
            ((touched,),) = self._engine.rows(f.touched_by, {"partition": partition})
            missing = set(touched) - self._finished(f, touched)
            for at in sorted(missing):
                self._make(f, at, at + f.span_ns)

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
        pending -= self._too_late(f, pending)
        for from_ns, to_ns in due(pending, f.span_ns, f.most):
            self._make(f, from_ns, to_ns)
            pending -= set(range(from_ns, to_ns, f.span_ns))
        self._pending[f.table], self._seen_ns[f.table] = pending, newest_ns

    def _make(self, f: Finisher, from_ns: int, to_ns: int) -> None:
        self._engine.command(f.sql, {"from_ns": from_ns, "to_ns": to_ns})
        self._counters.add("finished", f.table, (to_ns - from_ns) // f.span_ns)

    def _first(self, f: Finisher, touched: list[int]) -> set[int]:
        """Spans to roll up at the start: those not finished, and the newest finished ones again, for late rows."""
        finished = self._finished(f, touched)
        return (set(touched) - finished) | (set(sorted(finished)[-3:]) & set(touched))

    def _finished(self, f: Finisher, spans: list[int]) -> set[int]:
        """The finished ones among `spans` (rising) and after them."""
        if not spans:
            return set()
        ((finished,),) = self._engine.rows(f.finished, {"from_ns": spans[0]})
        return set(finished)

    def _too_late(self, f: Finisher, pending: set[int]) -> set[int]:
        """Finished spans some of whose rows are gone: made again they would be of the others alone."""
        gone = "SELECT toUnixTimestamp64Nano(max(until_at)) FROM dropped WHERE name = {name:String}"
        ((gone_ns,),) = self._engine.rows(gone, {"name": f.made_of})
        old = sorted(at for at in pending if at < gone_ns + _SEEN_AGAIN_NS)
        stay = self._finished(f, old) & set(old)
        self._counters.add("too-late", f.table, len(stay))
        return stay
