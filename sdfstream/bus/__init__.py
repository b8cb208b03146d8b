"""The bus: one seam, two implementations (in process, Kafka); the codec; the agents' link; recordings.

`Bus` and `Subscription` are the seam; ``tests/contract/bus.py`` is what every implementation must pass.

==================  =================================================================================
`codec`             output to bytes and headers and back; refuses what it cannot read, with the reason
`conform`           a foreign record batch brought to a topic's columns
`cloudevents`       the JSON of the rare topics
`dead_letters`      how a message that could not be read is kept in ``<topic>.dlq``
`sequences`         a producer's numbers, and a reader's count of gaps and repeats in them
`task`              the seam of exactly-once work; `merge` its order, `journal` how a stage goes on from a commit
`bus_io`         the bus of one process
`bus_io`          the same seam on Kafka
`client_io`           how an agent's process hands its outputs to a pipeline's process without Kafka, and hears from it
`tail_io`         an ear on a bus for one process: from now on, nothing committed
`format`         the form of a recording; `reader_io` its files
==================  =================================================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from sdfstream.bus.task import Stop, Task, Work
from sdfstream.records.message import Message, Output
from sdfstream.stats import Counters

__all__ = ["Bus", "Publisher", "Subscription", "Task", "Work"]


class Publisher(Protocol):
    """Where a producer leaves its outputs: a bus, a link to one, a recording."""

    counters: Counters

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Take `outputs`, in order per topic and key."""

    async def close(self) -> None:
        """Flush and stop."""


class Subscription(Protocol):
    """A consumer group's member reading some topics in the order they entered the bus (per topic and key)."""

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """Wait for messages; an empty list when none came within `timeout_s`.

        Raises
        ------
        BusError
            The subscription or its bus is closed.
        """

    async def commit(self) -> None:
        """Everything read so far is dealt with; a restarted member of the group goes on behind it."""

    def lag(self) -> int:
        """Messages on the bus that this subscription has not read yet."""

    async def close(self) -> None:
        """Leave the group."""


class Bus(Protocol):
    """Where outputs become messages.

    Counters every implementation keeps (reason in brackets): ``published`` (topic), ``delivered`` (topic),
    ``refused`` (what the codec said), ``gap`` and ``repeat`` (``group:topic``), ``lost`` (``group:topic``: messages
    that were gone before the group read them).
    """

    counters: Counters

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Put `outputs` on the bus, in order per topic and key; returns when they are taken (backpressure).

        Raises
        ------
        FormatError
            An output does not fit its topic, or is larger than the bus allows; those before it are taken.
        BusError
            The bus is closed or could not take them.
        """

    async def publish_bytes(self, topic: str, key: str, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        """Put a message in wire form on the bus, as another process made it.

        One that cannot be read is counted and kept in ``<topic>.dlq``, by whoever meets it first: this method in
        process, the reader on Kafka.
        """

    async def subscribe(self, group: str, topics: Sequence[str], *, from_start: bool = False) -> Subscription:
        """Join `group`; without a committed position start at the end, or with `from_start` at the beginning.

        Where the group starts is committed at once: a member that dies before its first commit loses nothing that
        entered the bus after `subscribe` returned.
        """

    async def partitions(self, topic: str) -> int:
        """How many partitions `topic` has."""

    async def task(self, work: Work, unit: int = 0) -> Task:
        """Take a unit of `work` into this caller's hands, out of anybody else's (`task`).

        Raises
        ------
        BusError, UnavailableError
            Its state could not be read.
        """

    async def shared(self, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, *, member: str = "") -> None:
        """Run ``run(task)`` for every unit of `work` that is this process's, for as long as it is.

        The units are dealt out among all processes that are in here for the same work. A unit that goes to another
        process has its run cancelled. Returns once `stop` is set and every run has returned, or raises what one raised
        (`BusError` included: the caller decides whether to begin again).

        Parameters
        ----------
        member : str
            Names this process among the others, so that its restart within some seconds moves no unit; empty: any.
        """

    async def close(self) -> None:
        """Flush and stop."""
