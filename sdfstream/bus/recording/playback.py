"""A recording published as if it happened now: its agents' messages, with every instant moved, under new boot ids.

One `Pass` is one time through the recording. For readers of the bus it is a new run of every agent: boot ids are new,
messages are numbered from 0 per topic and key, probes' sequence numbers begin where they began. So a second pass reads
like agents that were restarted, and no reader needs to know of the recording.

One rule moves instants, `TimeLine.at`. At speed 1 it adds a constant: every difference of two instants, thus every
clock offset, skew and delay, is the recording's. At another speed the rule moves the first instant of a row and the
others keep their distance to it, so that delays stay true while clocks drift as much faster as everything happens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sdfstream.bus.sequences import Numbers
from sdfstream.records import instants
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.switches import BOOT_PREFIX, is_switch
from sdfstream.records.topics import TOPICS
from sdfstream.records.units import Int64s

_BOOT_BYTES: Final = 8
_CONTROL: Final = "sdf.control."


def agents_topics(made: Collection[str]) -> tuple[str, ...]:
    """Topics that agents write, when stages write those of `made`.

    Commands, outcomes and overrides are left out: they are signed, or answer a signed message, for their time.
    """
    return tuple(name for name in TOPICS if name not in made and not name.startswith(_CONTROL))


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Maps instants of the recording to instants of the playback."""

    from_ns: int
    """An instant of the recording …"""
    to_ns: int
    """… and the instant that it becomes."""
    speed: float = 1.0

    def at(self, at_ns: int) -> int:
        """``to + (at − from) / speed``, exact at speed 1."""
        past_ns = at_ns - self.from_ns
        return self.to_ns + (past_ns if self.speed == 1.0 else round(past_ns / self.speed))

    def column(self, at_ns: Int64s) -> Int64s:
        """`at` of every instant of a column."""
        past_ns = at_ns - self.from_ns
        if self.speed != 1.0:
            past_ns = np.rint(past_ns / self.speed).astype(np.int64)
        moved: Int64s = self.to_ns + past_ns
        return moved


class Pass:
    """One time through a recording.

    Parameters
    ----------
    name : str
        Makes the boot ids of this pass unlike those of any other.
    line : TimeLine
    """

    def __init__(self, name: str, line: TimeLine) -> None:
        self._name = name
        self._line = line
        self._numbers = Numbers()

    def output(self, message: Message) -> Output:
        """The output to publish for `message` of the recording, at ``line.at(message.bus_at_ns)``."""
        boot_id = self._boot(message.boot_id)
        if isinstance(message.body, Event):
            body: Event = self._event(message.topic, message.body, message.boot_id)
            number = self._numbers.take(message.topic, message.key)
            return Output(message.topic, message.key, body, boot_id, number)
        rows = instants.moved_rows(message.topic, message.body, self._line.column)
        return Output(message.topic, message.key, rows, boot_id, self._numbers.take(message.topic, message.key))

    def _event(self, topic: str, event: Event, recorded: str) -> Event:
        data = instants.moved_event(topic, event.type, event.data, self._line.at)
        if isinstance(named := data.get("boot_id"), str):
            data["boot_id"] = self._boot(named)
        boot_id = self._boot(recorded)
        # an id is unique per source: agents make it of boot id and number, others get the new run's name appended
        known = bool(recorded) and recorded in event.id
        id_ = event.id.replace(recorded, boot_id) if known else f"{event.id}-{boot_id}"
        return replace(event, id=id_, time_ns=self._line.at(event.time_ns), data=data)

    def _boot(self, recorded: str) -> str:
        made = hashlib.blake2s(f"{self._name} {recorded}".encode(), digest_size=_BOOT_BYTES).hexdigest()
        return f"{BOOT_PREFIX}{made}" if is_switch(recorded) else made


@dataclass(slots=True)
class Pace:
    """When each message is due: at its instant, and after a stop at most `catch_up` times as fast.

    So a bus that was away does not get all messages of the outage at once.
    """

    due_at: Callable[[int], int]
    catch_up: float = 4.0
    _last_ns: int | None = None
    _went_ns: int = 0

    def due(self, bus_at_ns: int) -> int:
        """When to publish the message recorded at `bus_at_ns`; call `went` afterwards."""
        due_ns = self.due_at(bus_at_ns)
        if self._last_ns is None:
            return due_ns
        gap_ns = due_ns - self.due_at(self._last_ns)
        return max(due_ns, self._went_ns + round(gap_ns / self.catch_up))

    def went(self, bus_at_ns: int, now_ns: int) -> None:
        """The message recorded at `bus_at_ns` was published at `now_ns`."""
        self._last_ns, self._went_ns = bus_at_ns, now_ns
