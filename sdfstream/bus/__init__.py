"""The bus: one seam, two implementations (in process, Kafka); the codec; the agents' link; recordings.

Read in this order. `Bus` and `Subscription` (here) and `task` are the seam; ``tests/contract/bus.py`` and
``tests/contract/tasks.py`` are what every implementation must pass.

===============  ====================================================================================================
`task`           units of work, read and committed exactly once; `journal` how a stage's state goes with the commits
`codec`          outputs to bytes and headers and back; refuses what it cannot read, with the reason
`conform`        a foreign record batch brought to a topic's columns
`cloudevents`    the JSON of the rare topics
`producers`      the host that a message of an agent speaks for; rows of another are refused
`dead_letters`   the form of a message that could not be read, in ``<topic>.dlq``
`sequences`      a producer's numbers, and a reader's count of gaps and repeats in them
``memory/``      the bus of one process: `memory.bus_io`, its readers and tasks over `memory.topic_log`
``kafka/``       the bus on Kafka: `kafka.bus_io`, then `kafka.reader_io` (groups) and `kafka.task_io` (exactly once);
                 topics (`kafka.topic_policy`), rights (`kafka.roles`), security
``link/``        agents' outputs to a pipeline's process without Kafka, and messages back: `link.frames` the bytes,
                 `link.client_io` and `link.server_io` the ends
``recording/``   `recording.format`, writer and reader; `recording.playback` publishes a recording as if it were live
`open_io`        the bus that a setting names
`tail_io`        a reader of some topics from their end on, for one process
===============  ====================================================================================================
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from sdfstream.bus.task import Stop, Task, Work
from sdfstream.records.message import Message, Output
from sdfstream.stats import Counters

__all__ = ["Bus", "Publisher", "Subscription", "Task", "Work"]


class Publisher(Protocol):
    """Takes a producer's outputs: a bus, a link to one, a recording."""

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
        """Commit the positions behind every message read; a restarted member of the group goes on there."""

    def lag(self) -> int:
        """Messages on the bus that are not read yet."""

    async def close(self) -> None:
        """Leave the group."""


class Bus(Protocol):
    """Turns outputs into messages, in order per topic and key.

    Counters every implementation keeps (reason in brackets): ``published`` (topic), ``delivered`` (topic),
    ``refused`` (the codec's reason), ``gap``, ``repeat`` and ``jump`` (``group:topic``), ``lost`` (``group:topic``:
    messages that were gone before the group read them).
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

        One that cannot be read is counted and goes to ``<topic>.dlq``: by this method in process, by its reader on
        Kafka.
        """

    async def subscribe(
        self, group: str, topics: Sequence[str], *, from_start: bool = False, slice_ns: int = 0
    ) -> Subscription:
        """Join `group`; without a committed position start at the end, or with `from_start` at the beginning.

        `slice_ns`: as in `Work`; a bus with a latency of its own may give messages out at once.

        Where the group starts is committed at once: a member that dies before its first commit loses nothing that
        entered the bus after `subscribe` returned.
        """

    async def partitions(self, topic: str) -> int:
        """Number of partitions of `topic`."""

    async def task(self, work: Work, unit: int = 0) -> Task:
        """Own a unit of `work`; its former owner can commit no more (`task`).

        Raises
        ------
        BusError, UnavailableError
            Its state could not be read.
        """

    async def shared(self, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, *, member: str = "") -> None:
        """Run ``run(task)`` for every unit of `work` that this process owns, as long as it does.

        The units are assigned among all processes that call this for the same work. The run of a unit that goes to
        another process is cancelled. Returns once `stop` is set and every run has returned, or raises what one raised
        (`BusError` included: the caller decides whether to begin again).

        Parameters
        ----------
        member : str
            Names this process among the others, so that its restart within some seconds moves no unit; empty: any.
        """

    async def close(self) -> None:
        """Flush and stop."""
