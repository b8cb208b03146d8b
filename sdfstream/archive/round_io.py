"""One round of inserts, in the one thread that uses engine and spill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.failures import EngineError
from sdfstream.archive.insert_io import Inserter, build_inserts
from sdfstream.archive.queues import PendingInsert
from sdfstream.archive.spill_io import Spill
from sdfstream.errors import ArchiveError, FormatError
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class Round:
    """Work for the engine's thread, at most one insert per topic."""

    inserts: Sequence[PendingInsert]
    spill: PendingInsert | None
    removals: Sequence[str]
    """Spilled files whose rows are in their tables and whose positions are committed."""
    ping: bool
    """Whether to ask first if the engine answers."""
    beyond: bool
    """Whether to spill beyond the spill's limit."""


@dataclass(frozen=True, slots=True)
class RoundResult:
    """Outcome of a round."""

    inserted: Sequence[PendingInsert]
    failed: Sequence[PendingInsert]
    spilled: str | None
    """File that `Round.spill` went to; None: nothing was spilled."""


class RoundRunner:
    """Runs rounds.

    Counters: ``unkept`` (inserts refused for good that the disk refused too: tried again), ``lost.<topic>`` (rows of a
    damaged file that nobody else had).
    """

    def __init__(
        self, config: ArchiveConfig, inserter: Inserter, spill: Spill, counters: Counters, *, only_copy: bool
    ) -> None:
        self._config = config
        self._inserter = inserter
        self._spill = spill
        self._counters = counters
        self._only_copy = only_copy

    def run(self, round_: Round) -> RoundResult:
        """Remove, insert, spill, in this order."""
        for name in round_.removals:
            self._spill.remove(name)
        inserted: list[PendingInsert] = []
        failed: list[PendingInsert] = []
        away = round_.ping and not self._answers()
        for insert in round_.inserts:
            try:
                if not away:
                    self._insert(insert)
                    inserted.append(insert)
                    continue
            except EngineError as error:
                away = error.code is None
            except OSError as error:
                self._counters.add("unkept")
                self._counters.troubles.begin("failed inserts", f"the disk takes no failed insert: {error}")
            failed.append(insert)
        spilled = None
        if round_.spill is not None and round_.spill not in inserted:
            spilled = self._write_to_spill(round_.spill, beyond=round_.beyond)
        return RoundResult(inserted, failed, spilled)

    def _answers(self) -> bool:
        try:
            self._inserter.ping()
        except EngineError:
            return False
        return True

    def _insert(self, insert: PendingInsert) -> None:
        if insert.messages is not None:
            built = build_inserts(insert.intent, insert.messages, self._config.bus_id)
            self._inserter.insert(built.inserts)
            self._inserter.count_refused(built)
            return
        assert insert.file is not None, insert.intent
        try:
            rows = self._spill.read(insert.file)
        except (FormatError, FileNotFoundError) as error:
            self._damaged(insert, error)
        else:
            self._inserter.insert(rows)

    def _damaged(self, insert: PendingInsert, error: Exception) -> None:
        """A spilled file cannot be read: its rows are read from the bus again, or are lost and counted."""
        assert insert.file is not None, insert.intent
        if isinstance(error, FormatError):
            self._spill.set_aside(insert.file)
        if insert.intent.spans:
            raise ArchiveError(f"the spilled file {insert.file} cannot be read: reading its rows from the bus again")
        self._counters.add("lost", insert.intent.topic, insert.intent.rows)

    def _write_to_spill(self, insert: PendingInsert, *, beyond: bool) -> str | None:
        assert insert.messages is not None, insert.intent
        built = build_inserts(insert.intent, insert.messages, self._config.bus_id)
        name = self._spill.put(built.inserts, insert.intent, self._config.bus_id, only=self._only_copy, beyond=beyond)
        if name is not None:
            self._inserter.count_refused(built)
        return name
