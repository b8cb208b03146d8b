"""The engine's side of the archive: what a round asks for, done in one thread that alone uses engine and spill."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.failures import EngineError
from sdfstream.archive.insert_io import Inserter, built
from sdfstream.archive.lanes import Entry
from sdfstream.archive.spill_io import Spill
from sdfstream.errors import ArchiveError, FormatError
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class Round:
    """What the engine's thread is asked to do at once."""

    inserts: Sequence[Entry]
    spill: Entry | None
    removals: Sequence[str]
    """Spilled files whose rows are in their tables, and the positions moved."""
    ping: bool
    """Whether to ask first if the engine is there."""
    beyond: bool
    """Whether the spill's limit does not count."""


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a round."""

    inserted: Sequence[Entry]
    failed: Sequence[Entry]
    spilled: str | None


class Hands:
    """Does what a `Round` asks for.

    Counters: ``unkept`` (inserts refused for good that the disk refused too: tried again), ``lost.<topic>`` (rows of a
    damaged file that nobody else had).
    """

    def __init__(
        self, config: ArchiveConfig, inserter: Inserter, spill: Spill, counters: Counters, *, only_copy: bool
    ) -> None:
        self._config = config
        self._inserter = inserter
        self._spilled = spill
        self._counters = counters
        self._only_copy = only_copy

    def do(self, what: Round) -> Came:
        """Remove, insert, spill, in this order."""
        for name in what.removals:
            self._spilled.remove(name)
        inserted: list[Entry] = []
        failed: list[Entry] = []
        away = what.ping and not self._answers()
        for entry in what.inserts:
            try:
                if not away:
                    self._insert(entry)
                    inserted.append(entry)
                    continue
            except EngineError as error:
                away = error.code is None
            except OSError:
                self._counters.add("unkept")
            failed.append(entry)
        spilled = (
            self._spill(what.spill, beyond=what.beyond)
            if what.spill is not None and what.spill not in inserted
            else None
        )
        return Came(inserted, failed, spilled)

    def _answers(self) -> bool:
        try:
            self._inserter.ping()
        except EngineError:
            return False
        return True

    def _insert(self, entry: Entry) -> None:
        if entry.messages is not None:
            what = built(entry.intent, entry.messages, self._config.bus_id)
            self._inserter.insert(what.sheets)
            self._inserter.count_refused(what)
            return
        assert entry.file is not None, entry.intent
        try:
            rows = self._spilled.read(entry.file)
        except (FormatError, FileNotFoundError) as error:
            self._damaged(entry, error)
        else:
            self._inserter.insert(rows)

    def _damaged(self, entry: Entry, error: Exception) -> None:
        """A spilled file cannot be read any more: the bus has the rows, or they are lost and counted."""
        assert entry.file is not None, entry.intent
        if isinstance(error, FormatError):
            self._spilled.set_aside(entry.file)
        if entry.intent.spans:
            raise ArchiveError(f"the spilled file {entry.file} cannot be read: reading its rows from the bus again")
        self._counters.add("lost", entry.intent.topic, entry.intent.rows)

    def _spill(self, entry: Entry, *, beyond: bool) -> str | None:
        assert entry.messages is not None, entry.intent
        what = built(entry.intent, entry.messages, self._config.bus_id)
        name = self._spilled.put(what.sheets, entry.intent, self._config.bus_id, only=self._only_copy, beyond=beyond)
        if name is not None:
            self._inserter.count_refused(what)
        return name
