"""Dead letters: what sync refused, quoted with the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import PROBE
from sdfstream.sync.intake import REASONS


def dead_letters(message: Message, refused: npt.NDArray[np.uint8], most: int) -> list[Output]:
    """One event per message with refused rows: up to `most` of them with their values, the others by number."""
    assert isinstance(message.body, pa.RecordBatch)
    rows = np.flatnonzero(refused)
    counts = np.bincount(refused[rows], minlength=len(REASONS) + 1)[1:].tolist()
    quoted = message.body.take(pa.array(rows[:most])).to_pylist()
    data: dict[str, Any] = {
        "topic": message.topic,
        "bus_seq": message.bus_seq,
        "key": message.key,
        "boot_id": message.boot_id,
        "batch_seq": message.batch_seq,
        "reasons": {reason: n for reason, n in zip(REASONS, counts, strict=True) if n},
        "rows": [
            {"row": int(row), "reason": REASONS[refused[row] - 1], "value": value}
            for row, value in zip(rows[:most].tolist(), quoted, strict=True)
        ],
        "not_quoted": max(int(rows.size) - most, 0),
    }
    event = Event(PROBE.dead_letters, "sync", f"{message.topic}/{message.bus_seq}", message.bus_at_ns, data)
    return [Output(PROBE.dead_letters, message.key, event)]
