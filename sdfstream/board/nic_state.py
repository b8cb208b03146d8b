"""What the board knows of one NIC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class NicState:
    """One NIC: health per direction, and the state of its ports."""

    nic: str
    tx: dict[str, Any] = field(default_factory=dict)
    rx: dict[str, Any] = field(default_factory=dict)
    """Last `data` of ``sdf.state.nic.v1`` per direction."""
    ports: dict[str, str] = field(default_factory=dict)
    """State by port id."""
    rail: int | None = None
    last_received_at_ns: int = 0
    """Bus time of the last event of this NIC."""
