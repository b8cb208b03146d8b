"""The seam by which messages of the bus reach an agent: commands, mesh plans, clock states."""

from __future__ import annotations

from typing import Protocol

from sdfstream.records.message import Message


class Downlink(Protocol):
    """Messages for one agent; `downlink_io` opens it over a link or Kafka."""

    async def read(self, timeout_s: float) -> list[Message]:
        """Messages since the last call; waits for the first at most `timeout_s`. BusError when none can come."""
