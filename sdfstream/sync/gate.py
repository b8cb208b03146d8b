"""The way in: probe messages to accepted exchanges; what is refused is counted and quoted in a dead letter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import PROBE
from sdfstream.stats import Counters
from sdfstream.sync import intake
from sdfstream.sync.intake import Exchanges
from sdfstream.sync.letters import dead_letters


class Gate:
    """Reads probe messages for a stage of sync."""

    def __init__(self, most_dead_rows: int, counters: Counters) -> None:
        self._most = most_dead_rows
        self._counters = counters

    def take(self, message: Message, out: list[Output]) -> Exchanges | None:
        """Accepted rows of a message, if any; dead letters of the others go to `out`."""
        if not isinstance(message.body, pa.RecordBatch):
            self._refuse(message, "not-a-batch", "", out)
            return None
        try:
            exchanges, refused = intake.read(message.body)
        except FormatError as problem:
            self._refuse(message, problem.reason, problem.detail, out)
            return None
        self._counters.add("received", n=message.body.num_rows)
        if exchanges.row.size < message.body.num_rows:
            for code, count in enumerate(np.bincount(refused)[1:].tolist()):
                self._counters.add("refused", intake.REASONS[code], count)
            out += dead_letters(message, refused, self._most)
        return exchanges if exchanges.row.size else None

    def _refuse(self, message: Message, reason: str, detail: str, out: list[Output]) -> None:
        self._counters.add("refused-message", reason)
        self._counters.add("refused", reason, message.rows)
        data = {
            "topic": message.topic,
            "bus_seq": message.bus_seq,
            "key": message.key,
            "reason": reason,
            "detail": detail,
        }
        event = Event(PROBE.dead_letters, "sync", f"{message.topic}/{message.bus_seq}", message.bus_at_ns, data)
        out.append(Output(PROBE.dead_letters, message.key, event))
