"""Control of a pipeline's loops: when to stop, how often to commit, and the progress that they report."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sdfstream.records.message import Message
from sdfstream.stats import Counters


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """How often a stage's outputs and positions are committed, and its whole state stored."""

    commit_s: float = 0.05
    """Longest wait of an output for its commit; each commit costs the brokers some requests."""
    idle_s: float = 1.0
    """Longest wait of messages that led to no output."""
    snapshot_s: float = 10.0
    """Interval of snapshots; a restart repeats at most about so much of the stream."""


@dataclass(slots=True)
class RunControl:
    """The stop event of a pipeline, and the progress of its readers (stages, watchers, archive) by their names."""

    stop: asyncio.Event = field(default_factory=asyncio.Event)
    drain: bool = True
    """Once `stop` is set, first read all that is on the bus by then, stage after stage; False: the rest is left to the
    group's next member."""
    active_stages: list[str] = field(default_factory=list)
    """Stages of this process that have not ended, in the order of the pipeline."""
    counters: Counters = field(default_factory=lambda: Counters("pipeline"))
    lag: dict[str, int] = field(default_factory=dict)
    """Messages on the bus that each reader had not read after its last read."""
    reached_at_ns: dict[str, int] = field(default_factory=dict)
    """Bus time that each stage has been stepped to."""
    progress_at_s: dict[str, float] = field(default_factory=dict)
    """When each reader last read a message, or found none left, seconds of the event loop's clock. A loop that gets
    nothing although its lag is not zero makes no progress, however often it iterates."""
    oldest_at_ns: dict[str, int] = field(default_factory=dict)
    """Bus time of the oldest message that a reader has taken and not yet committed; absent: there is none."""
    joined_at_s: dict[str, float] = field(default_factory=dict)
    """When this process joined each stage's group, seconds of the event loop's clock; without a unit it stands by."""

    def has_active_upstream(self, name: str) -> bool:
        """Whether a stage before `name` is still active; all stages are before a watcher."""
        return bool(self.active_stages) and self.active_stages[0] != name

    def forget(self, name: str) -> None:
        """Drop the figures of reader `name`, which is no longer this process's."""
        for figures in (self.lag, self.reached_at_ns, self.progress_at_s, self.oldest_at_ns):
            figures.pop(name, None)


class StopCondition:
    """When a reader that is to stop has read enough.

    An empty bus cannot be the condition, since agents go on publishing. With `RunControl.drain` a reader stops behind
    the messages that were on the bus when the last stage before it had ended.
    """

    def __init__(self, control: RunControl, name: str, clock: Callable[[], int]) -> None:
        self._control, self._name, self._clock = control, name, clock
        self._stopping = False
        self._drain_until_ns: int | None = None

    def before_read(self) -> None:
        """Note, before each read, whether to stop and up to which bus time."""
        self._stopping = self._control.stop.is_set()
        if self._stopping and self._drain_until_ns is None and not self._control.has_active_upstream(self._name):
            self._drain_until_ns = self._clock()

    def is_met(self, messages: Sequence[Message]) -> bool:
        """Whether the read that gave `messages`, in bus order, was the last."""
        if not self._control.drain:
            return self._stopping
        return self._drain_until_ns is not None and (not messages or messages[-1].bus_at_ns > self._drain_until_ns)
