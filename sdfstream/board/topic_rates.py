"""How many messages and rows a topic brings now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.records.units import NS_PER_S

_RATE_NS: Final = 2 * NS_PER_S
"""Time constant of the rates."""


@dataclass(slots=True)
class TopicRate:
    """Messages and rows of one topic, decaying."""

    messages: float = 0.0
    rows: float = 0.0
    at_ns: int = 0

    def add(self, rows: int, now_ns: int) -> None:
        """Count a message of `rows` rows."""
        decay = math.exp(-max(now_ns - self.at_ns, 0) / _RATE_NS) if self.at_ns else 0.0
        self.messages = self.messages * decay + 1.0
        self.rows = self.rows * decay + rows
        self.at_ns = max(now_ns, self.at_ns)

    def view(self, now_ns: int) -> dict[str, Any]:
        """Rates now, and the age of the newest message."""
        per_s = math.exp(-max(now_ns - self.at_ns, 0) / _RATE_NS) * NS_PER_S / _RATE_NS
        return {
            "messages_per_s": round(self.messages * per_s, 2),
            "rows_per_s": round(self.rows * per_s, 1),
            "age_ns": now_ns - self.at_ns,
        }
