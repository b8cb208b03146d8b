"""The exactly-once seam: a stage's work cut into fixed units, each owned by one process at a time.

The words are Kafka Streams'. A stage's topics have partitions; a **unit** is a fixed share of them (unit u of U has
partition p where ``p mod U == u``). A **task** is a unit owned by one process: it reads the unit's partitions in bus
order, and its `Task.commit` does three things at once or none of them: it publishes outputs, moves the unit's
positions, and saves notes (small named blobs: a snapshot, an intent). The next owner of the unit finds the
`Checkpoint` of the last commit, and the former owner can commit no more. So each message has its effect on a stage's
outputs exactly once, wherever a process dies.

`Bus.shared` assigns units: it runs a function for each unit that this process owns, as long as it does.
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
    """Work that a group of processes shares."""

    name: str
    """The stage's; names the consumer group, and with the unit's number the task."""
    topics: tuple[str, ...]
    """Shared among the units by partition; none: a task that only publishes and notes."""
    for_all: tuple[str, ...] = ()
    """Every unit reads all their partitions."""
    units: int = 1
    """1: one process works, further ones stand by. Changing it begins the units' state anew."""
    from_start: bool = False
    """A unit without a position begins with the oldest message, not at the end."""
    slice_ns: int = 0
    """Rows are given out once the slice of bus time in which they came is over, so that few reads give all there are;
    an event ends the wait. 0: at once."""


class Task(Protocol):
    """A unit of work that this process owns. One coroutine uses it at a time."""

    work: Work
    unit: int
    saved: Checkpoint
    """As found when the task began; not kept up to date. A new unit begins with a commit of its own."""

    async def read(
        self, max_messages: int = 1000, timeout_s: float = 0.1, *, upto: Positions | None = None
    ) -> list[Message]:
        """The next messages in order of (bus_at_ns, topic, bus_seq), over all partitions; empty when none came.

        A message is held back until every partition that is behind was read up to its time, so that messages of an
        outage come in the order in which they would have come without one. Repeats (the same boot id and batch
        sequence again) are dropped and counted; what cannot be read is counted and becomes a dead letter with the
        next commit. `upto`: only messages before those offsets.

        Raises
        ------
        BusError
            The task has another owner now, or its bus is closed.
        """

    def positions(self) -> dict[Partition, int]:
        """Where the next `read` goes on: behind every message given out."""

    def seek(self, positions: Positions) -> None:
        """Begin to read at `positions`; partitions not named stay where they are. Only before the first `read`: later,
        messages read before would count as repeats.
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
            None: behind every message given out. Otherwise partitions not named keep the position they had.
        notes : mapping, optional
            None as a value deletes a note; notes not named stay.
        mark : bool
            The next owner begins to read here, whatever is committed later; `notes` replace all earlier ones. The mark
            holds the memory of repeats, so that the same messages are read again. Not together with `positions`.

        Raises
        ------
        FormatError
            An output does not fit its topic or is too large; nothing was done.
        BusError
            Nothing was done, or (the connection broke in mid-commit) the outcome is unknown: the task is over, and the
            next one finds the outcome.
        """

    def known_until_ns(self) -> int | None:
        """Bus time up to which this task has given out every message; None while it is behind or that is not known.

        While a broker is away this time stands still: no messages then does not mean that none were sent.
        """

    def lag(self) -> int:
        """Messages of the unit that are not read yet, as far as is known."""

    async def close(self) -> None:
        """Give the unit up; its next owner reads again what was read and not committed."""


class Stop(Protocol):
    """Set once (``asyncio.Event``)."""

    def is_set(self) -> bool:
        """Whether it is time to end."""

    async def wait(self) -> object:
        """Return when it is."""
