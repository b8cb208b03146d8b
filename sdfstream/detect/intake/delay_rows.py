"""Delay messages into the baselines: those of a slice as one where all their sessions are known (see `probe_rows`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sdfstream.detect.delays import read
from sdfstream.detect.engines import Engines
from sdfstream.errors import FormatError
from sdfstream.records import columns
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Message


class DelayIntake:
    """Takes messages of corrected delays.

    Parameters
    ----------
    engines : Engines
    made_ns : callable
        A message and the newest instant in it (None: it has no rows) to the instant of which it speaks, bus time.
    """

    def __init__(self, engines: Engines, made_ns: Callable[[Message, int | None], int]) -> None:
        self._counters, self._sessions, self._delays = engines.counters, engines.sessions, engines.delays
        self._admit, self._made_ns = engines.admit, made_ns

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages that entered the bus within one slice."""
        if len(messages) > 1 and self._take_together(messages):
            return
        for message in messages:
            try:
                windows, newest_ns = read(message.body), newest_of_each(message.body, [message])
                made_ns = self._made_ns(message, newest_ns[0])
                slots = self._sessions.of_batch(message.body, "dscp", made_ns)
                self._delays.take(windows, slots, np.full(slots.size, made_ns))
            except FormatError as error:
                self._counters.add("refused", error.reason)
            self._admit()

    def _take_together(self, messages: Sequence[Message]) -> bool:
        """Take them as one, if nothing in them is new and all can be read."""
        batch = JOINS.joined(messages)
        if batch is None:
            return False
        try:
            slots, windows = self._sessions.known_of_batch(batch, "dscp"), read(batch)
            newest_ns = newest_of_each(batch, messages)
        except FormatError:
            return False
        if slots is None:
            return False
        each_ns = map(self._made_ns, messages, newest_ns)
        made_ns = np.fromiter(each_ns, np.int64, len(messages)).repeat([m.rows for m in messages])
        self._sessions.table["seen_at_ns"][slots] = made_ns
        self._delays.take(windows, slots, made_ns)
        return True


def newest_of_each(batch: pa.RecordBatch, messages: Sequence[Message]) -> list[int | None]:
    """The newest instant of each message, of whose rows `batch` is made; None: it has no rows."""
    rows = np.array([m.rows for m in messages])
    held, readings_ns = rows > 0, columns.values(batch, "at_ns")
    if not readings_ns.size:
        return [None] * len(messages)
    newest = iter(np.maximum.reduceat(readings_ns, (np.cumsum(rows) - rows)[held]).tolist())
    return [next(newest) if some else None for some in held.tolist()]
