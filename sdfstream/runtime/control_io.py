"""What a pipeline's loops are told, when to end and how often to commit, and what they tell while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sdfstream.records.message import Message
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class Keep:
    """How often what a stage did is committed, and its whole state kept."""

    commit_s: float = 0.05
    """Outputs wait at most about so long for their commit; each costs the brokers some requests."""
    idle_s: float = 1.0
    """Likewise what was read without an output."""
    snapshot_s: float = 10.0
    """A restart repeats at most about so much."""


@dataclass(slots=True)
class Control:
    """What the pipeline is told and what it tells while it runs."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    drain: bool = True
    """Once told to stop, first read all that is on the bus by then, stage after stage; False: the rest is left to the
    group's next member."""
    at_work: list[str] = field(default_factory=list)
    """Stages of this process that have not ended, in the order of the path."""
    counters: Counters = field(default_factory=lambda: Counters("pipeline"))
    lag: dict[str, int] = field(default_factory=dict)
    """Messages on the bus that each reader had not read when it last looked."""
    reached_ns: dict[str, int] = field(default_factory=dict)
    """Bus time that each stage has been stepped to."""
    progress_s: dict[str, float] = field(default_factory=dict)
    """When each reader last moved, or found nothing left to read, on the event loop's clock. A loop that goes round
    and gets nothing although there is something has stopped, however busy it looks."""
    oldest_ns: dict[str, int] = field(default_factory=dict)
    """When the oldest message that a watcher has taken and not yet settled entered the bus."""
    joined_s: dict[str, float] = field(default_factory=dict)
    """Since when this process takes part in each stage's work, on the event loop's clock; with no unit of it, it
    stands by."""

    def fed(self, name: str) -> bool:
        """Whether a stage before `name` is still at work; before a watcher stand all of them."""
        return bool(self.at_work) and self.at_work[0] != name

    def forget(self, name: str) -> None:
        """Reader `name` is no longer this process's."""
        for signs in (self.lag, self.reached_ns, self.progress_s, self.oldest_ns):
            signs.pop(name, None)


class Ending:
    """When a reader that is told to stop has read enough.

    Not when nothing more comes: agents that nobody stops go on talking. What counts is what was on the bus once all
    who stand before the reader had ended.
    """

    def __init__(self, control: Control, name: str, clock: Callable[[], int]) -> None:
        self._control, self._name, self._clock = control, name, clock
        self._told = False
        self._upto_ns: int | None = None

    def look(self) -> None:
        """Before each read."""
        self._told = self._control.stop.is_set()
        if self._told and self._upto_ns is None and not self._control.fed(self._name):
            self._upto_ns = self._clock()

    def reached(self, messages: Sequence[Message]) -> bool:
        """Whether the read that gave `messages`, in bus order, was the last."""
        if not self._control.drain:
            return self._told
        return self._upto_ns is not None and (not messages or messages[-1].bus_at_ns > self._upto_ns)
