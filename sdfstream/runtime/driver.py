"""A stage and the time it is stepped along: what `pipeline` does with stages, live and in replay, without the bus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sdfstream.records.message import Message, Output
from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters


class Stage(Protocol):
    """A sans-IO engine: messages and the time in, outputs out. Time enters only here.

    The same messages with the same `now_ns` give the same outputs, byte for byte; cutting the stream of messages
    into calls anywhere changes nothing. `now_ns` never goes back. Input is never mutated.
    """

    name: str
    reads: tuple[str, ...]
    """Topics that the stage subscribes to."""
    writes: tuple[str, ...]
    """Topics that the stage publishes on; a replay ignores them in its input, since the stage makes them afresh."""
    counters: Counters

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` (none: a tick) that entered the bus up to `now_ns`; return what they cause."""

    def finish(self, now_ns: int) -> list[Output]:
        """The input has ended: return what was held back."""

    def snapshot(self) -> bytes:
        """The whole state, so that `restore` in a fresh stage goes on as if nothing had happened."""

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`."""


@dataclass(slots=True)
class Ticker:
    """The 100 ms boundaries of bus time; `upto` yields each one once, in order."""

    tick_ns: int = TICK_NS
    last_ns: int | None = None

    def upto(self, now_ns: int) -> Iterator[int]:
        """Every boundary after the last one given out and not after `now_ns`; the first call only sets the start."""
        if self.last_ns is None:
            self.last_ns = now_ns // self.tick_ns * self.tick_ns
            return
        while self.last_ns + self.tick_ns <= now_ns:
            self.last_ns += self.tick_ns
            yield self.last_ns


@dataclass(slots=True)
class Driver:
    """Steps one stage along bus time; now never goes back, whatever order messages of several topics come in."""

    stage: Stage
    ticker: Ticker = field(default_factory=Ticker)
    now_ns: int = 0

    def take(self, messages: Sequence[Message]) -> list[Output]:
        """Step at every boundary before each message, then at the message."""
        outputs: list[Output] = []
        for message in messages:
            outputs += self.advance(message.bus_at_ns)
            outputs += self.stage.step([message], self.now_ns)
        return outputs

    def advance(self, to_ns: int) -> list[Output]:
        """Step with nothing at every boundary up to `to_ns`."""
        outputs: list[Output] = []
        for boundary_ns in self.ticker.upto(to_ns):
            outputs += self.stage.step([], boundary_ns)
        self.now_ns = max(self.now_ns, to_ns)
        return outputs


@dataclass(slots=True)
class StageMaker:
    """How a stage is made, anew for every unit of its work, and those that were last made here."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    make: Callable[[str], Stage]
    """From the unit's name."""
    for_all: tuple[str, ...] = ()
    """Topics of which every unit reads all, where the others are dealt out among the units."""
    by_partition: str = ""
    """Topic whose partitions are the units; empty: there is one unit, and further processes stand by."""
    identity: str = ""
    """Whose snapshots it can take up: stage, version and configuration."""
    running: dict[int, Stage] = field(default_factory=dict)

    @property
    def counters(self) -> Counters:
        """Summed over the units that run here, or ran here last."""
        merged = Counters(self.name)
        for stage in self.running.values():
            for (what, reason), n in stage.counters.values.items():
                merged.add(what, reason, n)
        return merged
