"""One insert: its rows built, put into their table, or kept on disk with the engine's reason. Used by one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from sdfstream.archive import tables
from sdfstream.archive.events import event_rows
from sdfstream.archive.failures import EngineError
from sdfstream.archive.intent import Intent
from sdfstream.archive.kept_io import Kept
from sdfstream.archive.rows import Reject, Rows, bulk_rows, reject_rows
from sdfstream.archive.sheets import Sheet
from sdfstream.errors import FormatError
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED, Topic
from sdfstream.stats import Counters

_DEFECTS = (ValueError, TypeError, ArithmeticError, pa.ArrowException)
"""What our own code may raise on a message that no check foresaw."""


class Store(Protocol):
    """What an archive needs of an engine; `engine_io.Engine` is one."""

    def insert(self, table: str, rows: pa.Table, token: str) -> None:
        """Insert `rows` once, however often they come with the same `token`. Raises EngineError."""

    def command(self, sql: str) -> Any:
        """Run a statement. Raises EngineError."""


def build_rows(topic: Topic, messages: Sequence[Message], bus_id: str) -> Rows:
    """The rows of `messages`; one that our own code stumbles over is refused alone and takes no other with it."""
    build = bulk_rows if topic.form == "bulk" else event_rows
    try:
        return build(topic, messages, bus_id)
    except _DEFECTS as error:
        if len(messages) == 1:
            body = repr(messages[0].body).encode("utf-8", "backslashreplace")
            reject = Reject(messages[0], "defect", repr(error), messages[0].rows, body)
            empty = build(topic, (), bus_id).table
            return Rows(empty, (reject,))
    parts = [build_rows(topic, [message], bus_id) for message in messages]
    table = pa.concat_tables([part.table for part in parts]).unify_dictionaries().combine_chunks()
    return Rows(table, tuple(reject for part in parts for reject in part.rejects))


@dataclass(frozen=True, slots=True)
class Built:
    """What one entry puts into the archive."""

    sheets: tuple[Sheet, ...]
    """Its rows, and where some were refused these for the table ``reject``, with tokens of their own."""
    refused: Mapping[str, int]
    """Rows by reason."""
    unwritable: int
    """Refused rows that the table ``reject`` cannot hold either."""


def built(intent: Intent, messages: Sequence[Message], bus_id: str) -> Built:
    """The inserts of one entry. The same messages in the same order give the same rows in the same order."""
    topic = ARCHIVED[intent.topic]
    rows = build_rows(topic, messages, bus_id)
    sheets = [Sheet(tables.table_of(topic.name), rows.table, intent.token)]
    refused: dict[str, int] = {}
    for reject in rows.rejects:
        refused[reject.reason] = refused.get(reject.reason, 0) + reject.rows
    unwritable = 0
    if rows.rejects:
        try:
            sheets.append(Sheet(tables.REJECT_TABLE, reject_rows(rows.rejects, bus_id), f"{intent.token}/reject"))
        except _DEFECTS:  # not even their place on the bus can be written down; the counter is what remains
            unwritable = sum(r.rows for r in rows.rejects)
    return Built(tuple(sheets), refused, unwritable)


class Inserter:
    """Sheets into their tables.

    Counters: ``inserts.<table>``, ``rows.<table>``, ``bytes.<table>`` (Arrow bytes), ``refused.<reason>`` (rows),
    ``retries.<code>``, ``kept.<table>`` and ``restored.<table>`` (rows), ``still-kept`` (files), ``unwritable``
    (refused rows that the table ``reject`` cannot hold either).
    """

    def __init__(self, engine: Store, kept: Kept, counters: Counters) -> None:
        self._engine = engine
        self._kept = kept
        self._counters = counters
        self._landed: set[str] = set()
        """Tokens acknowledged of an entry that has to be inserted again."""

    def insert(self, sheets: Sequence[Sheet]) -> None:
        """Put `sheets` into their tables; one that the engine refuses for good is kept.

        Raises
        ------
        EngineError
            The engine is away, or refuses for a reason that may pass: all of them are to be inserted again.
        OSError
            What was refused could not be kept: likewise.
        """
        for sheet in sheets:
            if sheet.rows.num_rows == 0 or sheet.token in self._landed:
                continue
            try:
                self._engine.insert(sheet.table, sheet.rows, sheet.token)
            except EngineError as error:
                if error.may_pass:
                    self._counters.add("retries", f"code-{error.code}" if error.code else "unreachable")
                    raise
                self._kept.keep(sheet, str(error))
                self._counters.add("kept", sheet.table, sheet.rows.num_rows)
            else:
                self._counters.add("inserts", sheet.table)
                self._counters.add("rows", sheet.table, sheet.rows.num_rows)
                self._counters.add("bytes", sheet.table, sheet.rows.nbytes)
            self._landed.add(sheet.token)
        self._landed.difference_update(sheet.token for sheet in sheets)

    def count_refused(self, what: Built) -> None:
        """Count what was refused of an entry; once, however often it is inserted."""
        for reason, rows in what.refused.items():
            self._counters.add("refused", reason, rows)
        self._counters.add("unwritable", n=what.unwritable)

    def ping(self) -> None:
        """Raises EngineError when the engine is away."""
        try:
            self._engine.command("SELECT 1")
        except EngineError as error:
            self._counters.add("retries", f"code-{error.code}" if error.code else "unreachable")
            raise

    def restore(self) -> None:
        """Insert what an earlier run had to keep; what fails again stays where it is."""
        for path in self._kept.files():
            try:
                kept = self._kept.read(path)
                self._engine.insert(kept.table, kept.rows, kept.token)
            except (EngineError, FormatError, ValueError, KeyError, OSError):
                self._counters.add("still-kept")
            else:
                self._kept.remove(path)
                self._counters.add("restored", kept.table, kept.rows.num_rows)
