"""What the archive needs of a task and of its caller; ``bus/task.py`` says all of a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Partition, Positions


class ArchiveTask(Protocol):
    """The methods of a bus's task that the archive calls; `writer_io` has a task of its own."""

    @property
    def saved(self) -> Checkpoint:
        """As found when the task began: `read` goes on at its positions, and its notes hold intents."""

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """The next messages; repeats by the same producer are left out."""

    def positions(self) -> Mapping[Partition, int]:
        """Where the next `read` goes on."""

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Move positions and save notes, both or nothing. Raises BusError when the task has another owner by now."""

    def known_until_ns(self) -> int | None:
        """Bus time up to which every message was given out; stands still while the bus is away."""


class StopFlag(Protocol):
    """Set when the archive is to end: an `asyncio.Event`, a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether the archive is to end."""
