"""What the last commit of a unit of work left for whoever goes on with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sdfstream.records.position import Partition


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Positions and notes of one commit."""

    positions: dict[Partition, int] = field(default_factory=dict)
    """Every message before these is dealt with; empty: there was no commit."""
    notes: dict[str, bytes] = field(default_factory=dict)
    """Small named blobs: a snapshot, journal entries, intents."""
    mark: dict[Partition, int] = field(default_factory=dict)
    """Positions of the last commit with a mark, where the task begins to read; empty: it begins at `positions`."""
