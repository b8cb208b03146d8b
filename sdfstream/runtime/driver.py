"""The `Stage` protocol, and the driver that steps a stage along bus time; without a bus, for live runs and replays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.units import TICK_NS
from sdfstream.stats import Counters

MOST_TICKS: Final = 6000
"""Boundaries of one jump of bus time that are yielded, minutes of them; then only the last. By far more than a stage
is stepped at behind its last message (`runtime.aside`), so that nothing depends on it but a loop's length."""


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
        """End of the input: return the outputs that were held back."""

    def snapshot(self) -> bytes:
        """The whole state, from which `restore` in a fresh stage goes on as if nothing had happened."""

    def restore(self, state: bytes) -> None:
        """Replace the state by one that `snapshot` made."""


@dataclass(slots=True)
class Ticker:
    """The boundaries of bus time, every 100 ms by default; `upto` yields each one once, in order."""

    tick_ns: int = TICK_NS
    last_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether `upto` would yield any."""
        return self.last_ns is not None and now_ns - self.last_ns >= self.tick_ns

    def upto(self, now_ns: int) -> Iterator[int]:
        """Boundaries after the last one yielded and not after `now_ns`, `MOST_TICKS` and the last of them at most.

        The first call only sets the start.
        """
        if self.last_ns is None:
            self.last_ns = now_ns // self.tick_ns * self.tick_ns
            return
        behind = (now_ns - self.last_ns) // self.tick_ns
        for _ in range(min(behind, MOST_TICKS)):
            self.last_ns += self.tick_ns
            yield self.last_ns
        if behind > MOST_TICKS:
            self.last_ns = now_ns // self.tick_ns * self.tick_ns
            yield self.last_ns


def step_ns(stage: Stage) -> int:
    """Bus time from one step without messages to the next: the stage's ``step_ns``, which divides 100 ms, or that."""
    return int(getattr(stage, "step_ns", TICK_NS))


@dataclass(slots=True)
class Driver:
    """Steps one stage along bus time. `now_ns` never goes back, in whatever order messages of several topics come."""

    stage: Stage
    ticker: Ticker = field(default_factory=Ticker)
    now_ns: int = 0

    def __post_init__(self) -> None:
        """At the boundaries that the stage wants."""
        self.ticker.tick_ns = step_ns(self.stage)

    def take(self, messages: Sequence[Message]) -> list[Output]:
        """Step at every boundary before each message, then with the messages of each slice."""
        outputs: list[Output] = []
        for call in in_calls(messages):
            outputs += self.advance(call[-1].bus_at_ns)
            outputs += self.stage.step(call, self.now_ns)
        return outputs

    def advance(self, to_ns: int) -> list[Output]:
        """Step without messages at every boundary up to `to_ns`."""
        outputs: list[Output] = []
        for boundary_ns in self.ticker.upto(to_ns):
            outputs += self.stage.step([], boundary_ns)
        self.now_ns = max(self.now_ns, to_ns)
        return outputs


@dataclass(slots=True)
class StageMaker:
    """How a stage is made for each unit of its work, and the stages that this process made last."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    make: Callable[[str], Stage]
    """Unit name to a fresh stage."""
    for_all: tuple[str, ...] = ()
    """Topics that every unit reads whole; of the others each unit reads its partition."""
    by_partition: str = ""
    """Topic whose partitions are the units; empty: there is one unit, and further processes stand by."""
    identity: str = ""
    """Stage, layout of its state and digest of its settings (`layouts`): only snapshots of the same are restored, …"""
    formerly: frozenset[str] = frozenset()
    """… or of one of these, the identities that earlier releases gave to the same."""
    running: dict[int, Stage] = field(default_factory=dict)
    """Stage of each unit, by unit number."""

    @property
    def counters(self) -> Counters:
        """Summed over the units that run here, or ran here last."""
        merged = Counters(self.name)
        for stage in self.running.values():
            merged.troubles.open |= stage.counters.troubles.open
            for (what, reason), n in stage.counters.values.items():
                merged.add(what, reason, n)
        return merged
