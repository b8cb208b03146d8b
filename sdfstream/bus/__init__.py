"""The bus: one seam, two implementations (in process, Kafka); the codec; recordings.

`Bus` and `Subscription` are the seam; ``tests/contract/bus.py`` is what every implementation must pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sdfstream.records.message import Message, Output
from sdfstream.stats import Counters


class Subscription(Protocol):
    """A consumer group's member reading some topics in the order they entered the bus (per topic and key)."""

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """Wait for messages; an empty list when none came within `timeout_s`."""

    async def commit(self) -> None:
        """Everything read so far is dealt with; a restarted member of the group goes on behind it."""

    def lag(self) -> int:
        """Messages on the bus that this subscription has not read yet."""

    async def close(self) -> None:
        """Leave the group."""


class Bus(Protocol):
    """Where outputs become messages."""

    counters: Counters

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Put `outputs` on the bus, in order per topic and key; returns when they are taken (backpressure)."""

    async def subscribe(self, group: str, topics: Sequence[str], *, from_start: bool = False) -> Subscription:
        """Join `group`; without a committed position start at the end, or with `from_start` at the beginning."""

    async def close(self) -> None:
        """Flush and stop."""
