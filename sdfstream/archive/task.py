"""What the archive needs of the exactly-once seam, of which ``bus/task.py`` says all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from sdfstream.records.message import Message, Output
from sdfstream.records.position import Part, Positions


class Saved(Protocol):
    """What the last commit left."""

    @property
    def positions(self) -> Mapping[Part, int]:
        """Where to go on."""

    @property
    def notes(self) -> Mapping[str, bytes]:
        """Intents, among others."""


class Task(Protocol):
    """What the archive needs of a task of the bus (``bus/task.py`` says all of it)."""

    @property
    def saved(self) -> Saved:
        """As found when the task began: `read` goes on at its positions."""

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """The next messages; repeats by the same producer are left out."""

    def positions(self) -> Mapping[Part, int]:
        """Where the next `read` goes on."""

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Move positions and save notes, both or nothing. Raises BusError when the task is another's by now."""

    def known_until_ns(self) -> int | None:
        """Bus time up to which everything was given out; stands still while the bus is away."""


class Stop(Protocol):
    """Tells the archive to end: an `asyncio.Event`, a `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it is time."""
