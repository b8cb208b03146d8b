"""Messages of queue pairs' windows into the in-band engine: those of a slice as one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from sdfstream.detect.engines import Engines
from sdfstream.detect.intake.delay_rows import newest_of_each
from sdfstream.errors import FormatError
from sdfstream.records.joins import JOINS
from sdfstream.records.message import Message


class WindowIntake:
    """Takes messages of ``sdf.derived.qp.v1``.

    Parameters
    ----------
    engines : Engines
    made_ns : callable
        A message and the newest instant in it (None: it has no rows) to the instant of which it speaks, bus time.
    """

    def __init__(self, engines: Engines, made_ns: Callable[[Message, int | None], int]) -> None:
        self._counters, self._inband, self._made_ns = engines.counters, engines.inband, made_ns
        self._hops = engines.hops

    def take(self, messages: Sequence[Message]) -> None:
        """Take messages that entered the bus within one slice."""
        if len(messages) > 1 and self._take_together(messages):
            return
        for message in messages:
            try:
                self._take(message.body, [message])
            except FormatError as error:
                self._counters.add("refused", error.reason)

    def _take_together(self, messages: Sequence[Message]) -> bool:
        """Take them as one, if all can be read."""
        batch = JOINS.joined(messages)
        if batch is None:
            return False
        try:
            self._take(batch, messages)
        except FormatError:
            return False
        return True

    def _take(self, batch: pa.RecordBatch, messages: Sequence[Message]) -> None:
        windows, newest_ns = self._inband.read(batch), newest_of_each(batch, messages)
        made_ns = np.fromiter(map(self._made_ns, messages, newest_ns), np.int64, len(messages))
        self._hops.take_windows(windows, batch)
        self._inband.take(windows, made_ns.repeat([m.rows for m in messages]))
