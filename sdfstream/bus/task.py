"""The exactly-once seam: a stage's work cut into fixed units, each owned by one process at a time.

The words are Kafka Streams'. A stage's topics have partitions; a **unit** is a fixed share of them (unit u of U has
partition p where ``p mod U == u``). A **task** is a unit in the hands of one process: it reads the unit's partitions
in bus order, and its `Task.commit` does three things at once or none of them: it publishes outputs, moves the unit's
positions, and saves notes (small named blobs: a snapshot, an intent). Whoever owns the unit next finds positions and
notes of the last commit, and the owner before it can commit no more. So what a stage says follows from what it has
read exactly once, wherever a process dies.

`shared` hands units out: it runs a function for each unit that is this process's, for as long as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from sdfstream.records.checkpoint import Checkpoint
from sdfstream.records.message import Message, Output
from sdfstream.records.position import Partition, Positions


@dataclass(frozen=True, slots=True)
class Work:
    """What a group of processes does together."""

    name: str
    """Of the stage; names the consumer group, and with the unit's number the task."""
    topics: tuple[str, ...]
    """Dealt out among the units by partition."""
    for_all: tuple[str, ...] = ()
    """Of which every unit reads all partitions."""
    units: int = 1
    """1: one process works, further ones stand by. Changing it begins the units' state anew."""
    from_start: bool = False
    """A unit without a position begins with the oldest message, not at the end."""


class Task(Protocol):
    """A unit of work in this process's hands. One coroutine uses it at a time."""

    work: Work
    unit: int
    saved: Checkpoint
    """As found when the task began; not kept up to date. A unit that never was begins with a commit of its own."""

    async def read(
        self, max_messages: int = 1000, timeout_s: float = 0.1, *, upto: Positions | None = None
    ) -> list[Message]:
        """The next messages in order of (bus_at_ns, topic, bus_seq), over all partitions; empty when none came.

        A message is held back until every partition that is behind has been heard as far, so that what a stage meets
        after an outage comes in the order in which it would have come without one. Repeats (the same boot id and batch
        sequence again) are dropped and counted; what cannot be read is counted and becomes a dead letter with the
        next commit. With `upto` only messages before those offsets are given.

        Raises
        ------
        BusError
            The task is another process's now, or its bus is closed.
        """

    def positions(self) -> dict[Partition, int]:
        """Where the next `read` goes on: behind everything given out."""

    def seek(self, positions: Positions) -> None:
        """Begin to read there; partitions not named stay where they are. Only before the first `read`: later, what was
        read before would be taken for a repeat.
        """

    async def commit(
        self,
        outputs: Sequence[Output] = (),
        *,
        positions: Positions | None = None,
        notes: Mapping[str, bytes | None] | None = None,
        mark: bool = False,
    ) -> None:
        """Publish `outputs`, move the unit's positions and save `notes`, all at once or nothing at all.

        Parameters
        ----------
        outputs : sequence of Output
        positions : mapping, optional
            None: behind everything given out. Otherwise partitions not named keep the position they had.
        notes : mapping, optional
            None as a value deletes a note; notes not named stay.
        mark : bool
            The next owner is to begin to read here, whatever is committed later; `notes` are all there are from now on.
            With it goes the memory of repeats, so that what is read again is the same. Not together with `positions`.

        Raises
        ------
        FormatError
            An output does not fit its topic or is too large; nothing was done.
        BusError
            Nothing was done, or (the connection broke in mid-commit) it is not known: the task is over, and the next
            one finds out.
        """

    def known_until_ns(self) -> int | None:
        """Bus time up to which this task has given out everything; None while it is behind or cannot tell.

        While a broker is away this stands still: silence of the bus is not silence of what it carries.
        """

    def lag(self) -> int:
        """Messages of the unit that were not read yet, as far as is known."""

    async def close(self) -> None:
        """Give the unit back; what was read and not committed is read again by its next owner."""


class Stop(Protocol):
    """Set once (``asyncio.Event``)."""

    def is_set(self) -> bool:
        """Whether it is time to end."""

    async def wait(self) -> object:
        """Return when it is."""
