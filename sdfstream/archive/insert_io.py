"""One insert at a time: tried again when the failure may pass, else kept on disk with the reason."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from sdfstream.archive import tables
from sdfstream.archive.batching import Batch
from sdfstream.archive.config import ArchiveConfig
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.events import event_rows
from sdfstream.archive.failures import EngineError
from sdfstream.archive.kept_io import Kept
from sdfstream.archive.rows import Reject, Rows, bulk_rows, reject_rows
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED, Topic
from sdfstream.stats import Counters

_BACKOFF_MAX_S = 10.0
_DEFECTS = (ValueError, TypeError, ArithmeticError, pa.ArrowException)
"""What our own code may raise on a message that no check foresaw."""


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


class Inserter:
    """Batches into tables over one engine handle; used by the archive's worker thread only.

    Counters: ``inserts.<table>``, ``rows.<table>``, ``refused.<reason>`` (rows), ``retries.<code>``,
    ``kept.<table>`` and ``restored.<table>`` (rows), ``lost.<table>`` (rows that even the disk refused),
    ``unwritable`` (refused rows that the table ``reject`` cannot hold either).
    """

    def __init__(self, config: ArchiveConfig, engine: Engine, kept: Kept, counters: Counters) -> None:
        self._config = config
        self._engine = engine
        self._kept = kept
        self._counters = counters

    def archive(self, batch: Batch) -> None:
        """Insert the rows of `batch`, and what was refused of it into the table ``reject``."""
        topic = ARCHIVED[batch.topic]
        rows = build_rows(topic, batch.messages, self._config.bus_id)
        self._insert(tables.table_of(topic.name), rows.table, batch.token)
        self._refuse(rows.rejects, batch.token)

    def _refuse(self, rejects: Sequence[Reject], token: str) -> None:
        for reject in rejects:
            self._counters.add("refused", reject.reason, reject.rows)
        if not rejects:
            return
        try:
            refused = reject_rows(rejects, self._config.bus_id)
        except _DEFECTS:  # not even its place on the bus can be written down; the counter is what remains
            self._counters.add("unwritable", n=sum(r.rows for r in rejects))
        else:
            self._insert(tables.REJECT_TABLE, refused, f"{token}/reject")

    def restore(self) -> None:
        """Insert what an earlier run had to keep; what fails again stays where it is."""
        for path in self._kept.files():
            try:
                kept = self._kept.read(path)
                self._engine.insert(kept.table, kept.rows, kept.token)
            except (EngineError, pa.ArrowInvalid, KeyError, OSError):
                self._counters.add("still-kept")
            else:
                path.unlink(missing_ok=True)
                self._counters.add("restored", kept.table, kept.rows.num_rows)

    def _insert(self, table: str, rows: pa.Table, token: str) -> None:
        if rows.num_rows == 0:
            return
        wait_s = self._config.retry_ms / 1000
        for attempt in range(self._config.retries + 1):
            try:
                self._engine.insert(table, rows, token)
            except EngineError as error:
                if attempt == self._config.retries or not error.may_pass:
                    self._keep(table, rows, token, error)
                    return
                self._counters.add("retries", f"code-{error.code}" if error.code else "unreachable")
                time.sleep(wait_s)
                wait_s = min(2 * wait_s, _BACKOFF_MAX_S)
            else:
                self._counters.add("inserts", table)
                self._counters.add("rows", table, rows.num_rows)
                return

    def _keep(self, table: str, rows: pa.Table, token: str, error: EngineError) -> None:
        try:
            self._kept.keep(table, rows, token, str(error))
        except OSError:
            self._counters.add("lost", table, rows.num_rows)
        else:
            self._counters.add("kept", table, rows.num_rows)
