"""One insert: rows built from messages, then inserted, or stored on disk with the engine's reason. For one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from sdfstream.archive import tables
from sdfstream.archive.events import event_rows
from sdfstream.archive.failed_inserts_io import FailedInserts
from sdfstream.archive.failures import EngineError
from sdfstream.archive.insert_file import TableInsert
from sdfstream.archive.intent import Intent
from sdfstream.archive.rows import Reject, TableRows, bulk_rows, reject_rows
from sdfstream.errors import FormatError
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED, Topic
from sdfstream.stats import Counters

_DEFECTS = (ValueError, TypeError, ArithmeticError, pa.ArrowException)
"""Errors of our own code on a message that passed every check."""


class Store(Protocol):
    """What the archive needs of an engine; `engine_io.Engine` is one."""

    def insert(self, table: str, rows: pa.Table, token: str) -> None:
        """Insert `rows` once, however often they come with the same `token`. Raises EngineError."""

    def command(self, sql: str) -> Any:
        """Run a statement. Raises EngineError."""


def build_rows(topic: Topic, messages: Sequence[Message], bus_id: str) -> TableRows:
    """The rows of `messages`; a message that our own code fails on is refused alone."""
    build = bulk_rows if topic.form == "bulk" else event_rows
    try:
        return build(topic, messages, bus_id)
    except _DEFECTS as error:
        if len(messages) == 1:
            body = repr(messages[0].body).encode("utf-8", "backslashreplace")
            reject = Reject(messages[0], "defect", repr(error), messages[0].rows, body)
            empty = build(topic, (), bus_id).table
            return TableRows(empty, (reject,))
    singles = [build_rows(topic, [message], bus_id) for message in messages]
    table = pa.concat_tables([single.table for single in singles]).unify_dictionaries().combine_chunks()
    return TableRows(table, tuple(reject for single in singles for reject in single.rejects))


@dataclass(frozen=True, slots=True)
class Built:
    """The inserts of one intent, and what was refused of it."""

    inserts: tuple[TableInsert, ...]
    """The topic's rows and, where some were refused, rows for the table ``reject``; each with a token of its own."""
    refused: Mapping[str, int]
    """Rows by reason."""
    unwritable: int
    """Refused rows that the table ``reject`` cannot hold either."""


def build_inserts(intent: Intent, messages: Sequence[Message], bus_id: str) -> Built:
    """The inserts of `intent`. The same messages in the same order give the same rows in the same order."""
    topic = ARCHIVED[intent.topic]
    rows = build_rows(topic, messages, bus_id)
    inserts = [TableInsert(tables.table_of(topic.name), rows.table, intent.token)]
    refused: dict[str, int] = {}
    for reject in rows.rejects:
        refused[reject.reason] = refused.get(reject.reason, 0) + reject.rows
    unwritable = 0
    if rows.rejects:
        try:
            inserts.append(
                TableInsert(tables.REJECT_TABLE, reject_rows(rows.rejects, bus_id), f"{intent.token}/reject")
            )
        except _DEFECTS:  # not even their bus columns can be written; the counter is what remains
            unwritable = sum(r.rows for r in rows.rejects)
    return Built(tuple(inserts), refused, unwritable)


class Inserter:
    """Puts inserts into their tables.

    Counters: ``inserts.<table>``, ``rows.<table>``, ``bytes.<table>`` (Arrow bytes), ``refused.<reason>`` (rows),
    ``retries.<code>``, ``kept.<table>`` and ``restored.<table>`` (rows), ``still-kept`` (files), ``unwritable``
    (refused rows that the table ``reject`` cannot hold either).
    """

    def __init__(self, engine: Store, failed: FailedInserts, counters: Counters) -> None:
        self._engine = engine
        self._failed = failed
        self._counters = counters
        self._acknowledged: set[str] = set()
        """Tokens that the engine took, of inserts that have to be repeated together with others."""

    def insert(self, inserts: Sequence[TableInsert]) -> None:
        """Put `inserts` into their tables; one that the engine refuses for good goes to `FailedInserts`.

        Raises
        ------
        EngineError
            The engine is away, or refuses for a reason that may pass: all of them are to be inserted again.
        OSError
            A refused insert could not be stored: likewise.
        """
        for insert in inserts:
            if insert.rows.num_rows == 0 or insert.token in self._acknowledged:
                continue
            try:
                self._engine.insert(insert.table, insert.rows, insert.token)
            except EngineError as error:
                if error.may_pass:
                    self._refused(error)
                    raise
                self._failed.store(insert, str(error))
                self._counters.troubles.end("failed inserts")
                self._counters.add("kept", insert.table, insert.rows.num_rows)
            else:
                self._counters.troubles.end("engine")
                self._counters.add("inserts", insert.table)
                self._counters.add("rows", insert.table, insert.rows.num_rows)
                self._counters.add("bytes", insert.table, insert.rows.nbytes)
            self._acknowledged.add(insert.token)
        self._acknowledged.difference_update(insert.token for insert in inserts)

    def count_refused(self, built: Built) -> None:
        """Count the refused rows of `built`: once, however often it is inserted."""
        for reason, rows in built.refused.items():
            self._counters.add("refused", reason, rows)
        self._counters.add("unwritable", n=built.unwritable)

    def ping(self) -> None:
        """Raises EngineError when the engine is away."""
        try:
            self._engine.command("SELECT 1")
        except EngineError as error:
            self._refused(error)
            raise

    def _refused(self, error: EngineError) -> None:
        self._counters.add("retries", f"code-{error.code}" if error.code else "unreachable")
        self._counters.troubles.begin("engine", f"nothing can be inserted, rows wait: {error}")

    def restore(self) -> None:
        """Repeat the failed inserts of earlier runs; what fails again stays on disk."""
        for path in self._failed.files():
            try:
                failed = self._failed.read(path)
                self._engine.insert(failed.table, failed.rows, failed.token)
            except (EngineError, FormatError, ValueError, KeyError, OSError):
                self._counters.add("still-kept")
            else:
                self._failed.remove(path)
                self._counters.add("restored", failed.table, failed.rows.num_rows)
