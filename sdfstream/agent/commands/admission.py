"""Who is believed: the checks a command must pass before anyone looks at what it wants.

In this order, the cheap and the general first; the first that fails names the refusal:

============  =======================================================================================
malformed     cannot be read, or its times make no sense
wrong-host    came under this host's key but is meant for another
unknown-key   signed with a key that is not trusted here
forged        the signature does not match what was signed
not-enforced  its mode is not ``enforce``: observe, dry-run and approve change nothing
wrong-epoch   a later run of the controller has spoken already
expired       its lease is over, by the bound of bus time
replayed      not later than what was heard of this command before, or of one that was undone by hand
============  =======================================================================================

Commands under other hosts' keys are not ours to judge: they are passed over and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.agent.commands.bus_time import BusTime
from sdfstream.errors import FormatError
from sdfstream.records.command import Command, command
from sdfstream.records.message import Event, Message
from sdfstream.records.signature import KeyRing
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

REASONS: Final = (
    "malformed",
    "wrong-host",
    "unknown-key",
    "forged",
    "not-enforced",
    "wrong-epoch",
    "expired",
    "replayed",
    "unknown-target",
    "unexpected-state",
)
"""Every reason of a refusal by an agent."""

LONGEST_LEASE_NS: Final = 3600 * NS_PER_S
"""A longer lease is no lease."""
_KEEP_NS: Final = 60 * NS_PER_S
"""What was heard of a command is forgotten this long after its lease, by when it is refused as expired anyway."""
_MOST_REMEMBERED: Final = 100_000


@dataclass(frozen=True, slots=True)
class Refusal:
    """Not done, and why."""

    reason: str
    """One of `REASONS`."""
    sentence: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.sentence}"


@dataclass(frozen=True, slots=True)
class Admitted:
    """A command that is believed."""

    command: Command
    data: Mapping[str, Any]
    """As it was signed."""


@dataclass(slots=True)
class Heard:
    """What is remembered of a command's statements."""

    issued_at_ns: int
    expires_at_ns: int
    revoked: bool = False
    """It was undone by command; nothing later of it counts."""


@dataclass(slots=True)
class Admission:
    """Judges command messages for some hosts; keeps the highest epoch and what was heard of every command.

    Parameters
    ----------
    hosts : collection of str
        The agent's hosts.
    keys : KeyRing
        Whom it trusts; an empty ring trusts nobody.
    """

    hosts: Collection[str]
    keys: KeyRing
    epoch: int = 0
    heard: dict[str, Heard] = field(default_factory=dict)
    bus: BusTime = field(default_factory=BusTime)
    counters: Counters = field(default_factory=lambda: Counters("control"))
    forgetful: bool = False
    """What was heard in an earlier run is lost: a statement older than this run's first message may be a replay."""
    _first_at_ns: int = 0

    def read(self, message: Message, now_ns: int) -> Admitted | Refusal | None:
        """The command in `message`, or the first check that it does not pass; None: not for us."""
        self.bus.heard(message.bus_at_ns, now_ns)
        self._first_at_ns = self._first_at_ns or message.bus_at_ns
        if message.key not in self.hosts:
            self.counters.add("passed-over", "other-host")
            return None
        if not isinstance(message.body, Event):
            return Refusal("malformed", "it is no event")
        data = message.body.data
        try:
            read = command(data)
        except FormatError as error:
            return Refusal("malformed", error.detail)
        return (
            self._misfit(read, message.key)
            or self._distrust(read, data)
            or self._out_of_time(read, now_ns)
            or self._remember(read, now_ns)
            or Admitted(read, data)
        )

    @staticmethod
    def _misfit(read: Command, host: str) -> Refusal | None:
        if not read.issued_at_ns < read.expires_at_ns <= read.issued_at_ns + LONGEST_LEASE_NS:
            return Refusal("malformed", "its lease ends before it begins, or lasts longer than an hour")
        if read.target.get("host") != host:
            return Refusal("wrong-host", f"it came to {host} but is meant for {read.target.get('host')!r}")
        return None

    def _distrust(self, read: Command, data: Mapping[str, Any]) -> Refusal | None:
        why = self.keys.refuses(data)
        if why == "unknown-key":
            return Refusal("unknown-key", f"key {read.key_id!r} is not trusted here")
        if why:
            return Refusal("forged", "the signature does not match the command")
        if read.mode != "enforce":
            return Refusal("not-enforced", f"its mode is {read.mode}")
        return None

    def _out_of_time(self, read: Command, now_ns: int) -> Refusal | None:
        if read.epoch < self.epoch:
            return Refusal("wrong-epoch", f"epoch {read.epoch} is over, {self.epoch} has begun")
        self.epoch = read.epoch
        if read.expires_at_ns <= self.bus.now(now_ns):
            return Refusal("expired", "its lease is over")
        known = self.heard.get(read.id)
        if known is not None and known.revoked:
            known.expires_at_ns = max(known.expires_at_ns, read.expires_at_ns)
            return Refusal("replayed", "it was undone by command, and nothing later of it counts")
        if known is None and self.forgetful and read.issued_at_ns < self._first_at_ns:
            return Refusal("replayed", "what was heard before is lost, and this was issued before")
        if known is not None and read.issued_at_ns <= known.issued_at_ns:
            return Refusal("replayed", "this or a later statement of it was heard before")
        return None

    def _remember(self, read: Command, now_ns: int) -> Refusal | None:
        if len(self.heard) >= _MOST_REMEMBERED:
            self.forget(now_ns)
            if len(self.heard) >= _MOST_REMEMBERED:
                return Refusal("unexpected-state", "too many commands are in force")
        self.heard[read.id] = Heard(read.issued_at_ns, read.expires_at_ns)
        return None

    def revoke(self, command_id: str) -> None:
        """Nothing later of this command counts."""
        if command_id in self.heard:
            self.heard[command_id].revoked = True

    def forget(self, now_ns: int) -> None:
        """Drop what is remembered of commands that anyway count as expired."""
        bus_ns = self.bus.now(now_ns)
        self.heard = {i: h for i, h in self.heard.items() if h.expires_at_ns + _KEEP_NS > bus_ns}
