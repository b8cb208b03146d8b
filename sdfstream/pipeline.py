"""READ FIRST: the path of a sample, stage by stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sdfstream.records.message import Message, Output
from sdfstream.stats import Counters


class Stage(Protocol):
    """A sans-IO engine: messages and the time in, outputs out. Time enters only here.

    The same messages with the same `now_ns` give the same outputs, byte for byte; cutting the stream of messages
    into calls anywhere changes nothing. `now_ns` never goes back. Input is never mutated.
    """

    name: str
    reads: tuple[str, ...]
    """Topics the stage subscribes to."""
    counters: Counters

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        """Take `messages` (none: a tick) that entered the bus up to `now_ns`; return what they cause."""

    def snapshot(self) -> bytes:
        """The whole state, so that `restore` in a fresh stage goes on as if nothing had happened."""

    def restore(self, state: bytes) -> None:
        """Take up a state made by `snapshot`."""
