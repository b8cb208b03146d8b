"""What travels on the bus: messages in, outputs out, and the CloudEvents envelope of the rare ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

MOST_KEY: Final = 1024
"""Characters of a message's key: an id, or several. Of longer ids the key is the beginning."""


@dataclass(frozen=True, slots=True)
class Event:
    """One CloudEvents 1.0 object (structured mode). `data` is plain JSON: dicts, lists, strings, numbers, None."""

    type: str
    """What happened; for us the topic name, with a suffix where a topic carries several types."""
    source: str
    """Who says so: an agent's host or a stage's name."""
    id: str
    """Unique per source; a repeat carries the same id."""
    time_ns: int
    """When it was said, ns since the Unix epoch."""
    data: Mapping[str, Any]
    """The topic's payload, see ``schemas/``."""


Body: TypeAlias = pa.RecordBatch | Event


@dataclass(frozen=True, slots=True)
class Output:
    """Something a stage or an agent wants on the bus."""

    topic: str
    key: str
    body: Body
    boot_id: str = ""
    """The producer's run, where an output is passed on for another producer; else the bus writes its own."""
    batch_seq: int = -1
    """The producer's number for it, together with `boot_id`."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something that entered the bus; `bus_at_ns` is the only time a stage may know."""

    topic: str
    key: str
    body: Body
    """Of its topic's shape, within its bounds, without a null where none may be: what enters a bus has been checked."""
    bus_at_ns: int
    """When it entered the bus, ns since the Unix epoch, the bus's clock; never goes back within a topic."""
    bus_seq: int
    """Message number within the topic, from 0."""
    boot_id: str = ""
    """The producer's run; a new one means the producer started afresh. Empty when not known."""
    batch_seq: int = -1
    """The producer's own message number in this topic and boot, from 0; -1 when not known."""

    @property
    def rows(self) -> int:
        """Rows in the body; an event counts as one."""
        return self.body.num_rows if isinstance(self.body, pa.RecordBatch) else 1
