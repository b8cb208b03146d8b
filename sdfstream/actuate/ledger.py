"""What the controller has published: every command in force, its renewals and what became of it, and refusals.

======== ================================================================================
state    meaning
======== ================================================================================
waiting  published with mode ``approve``; a person has to agree
told     published with mode ``dry-run`` (`DRY_RUN`); agents do not obey, nothing more happens
approved a person agreed; it is looked at once more and then sent
sent     published with mode ``enforce``; no answer yet
accepted the agent has it; a failover is armed
applied  done: the queue pair is on another path, or limited
held     its lease is over or it was undone, but the agent leaves it where it is
over     expired, undone, refused or failed: it is forgotten after a while
======== ================================================================================

A refusal is published once per target and rule, then ever more seldom while it lasts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.records.command import Outcome
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import COMMAND, OUTCOME
from sdfstream.records.units import NS_PER_S

SOURCE: Final = "actuate"
"""Source of the stage's events."""
HOST: Final = "controller"
"""Host of the stage's outcomes."""

DRY_RUN: Final = "told"
"""State of a command that agents do not obey; its word in snapshots."""
_STATE: Final = {
    "accepted": "accepted",
    "applied": "applied",
    "held": "held",
    "refused": "over",
    "failed": "over",
    "undone": "over",
    "expired": "over",
}


@dataclass(slots=True)
class IssuedCommand:
    """One command that the controller has published."""

    id: str
    action: str
    target: dict[str, Any]
    expected: dict[str, Any]
    set: dict[str, Any]
    undo: dict[str, Any]
    reason: list[str]
    mode: str
    issued_at_ns: int = 0
    expires_at_ns: int = 0
    state: str = "sent"
    why: str = ""
    """The sentence of the agent's last outcome."""
    said: int = 0
    """Statements so far."""
    over_at_ns: int = 0
    began_at_ns: int = 0
    seen_ns: int = field(default=-1)
    """Agent's clock of its last outcome: an earlier one that comes late changes nothing."""

    @property
    def qp(self) -> str:
        """The target's id."""
        return str(self.target["id"])

    @property
    def host(self) -> str:
        """Where it is done."""
        return str(self.target.get("host", ""))

    @property
    def in_force(self) -> bool:
        """Whether an agent may act on it, or has."""
        return self.state in ("sent", "accepted", "applied", "held")


class CommandLedger:
    """Commands by id. `epoch` fences: agents refuse any lower than the highest they have seen."""

    def __init__(self, config: ActuateConfig, signer: Signer, epoch: int) -> None:
        self._lease_ns, self._approval_ns = config.lease_ns, ns(config.approval_s)
        self._signer = signer
        self.epoch = epoch
        self._commands: dict[str, IssuedCommand] = {}
        self._number = 0

    def __iter__(self) -> Iterator[IssuedCommand]:
        return iter(self._commands.values())

    def get(self, command_id: str) -> IssuedCommand | None:
        """The command of this id; None: not this controller's, or long over."""
        return self._commands.get(command_id)

    def __len__(self) -> int:
        return len(self._commands)

    def in_force(self) -> int:
        """Commands in force."""
        return sum(command.in_force for command in self._commands.values())

    def open(
        self,
        action: str,
        target: Mapping[str, Any],
        expected: Mapping[str, Any],
        set_: Mapping[str, Any],
        undo: Mapping[str, Any],
        reason: tuple[str, ...],
        mode: str,
    ) -> IssuedCommand:
        """A new command; `publish` publishes it."""
        self._number += 1
        state = {"dry-run": DRY_RUN, "approve": "waiting"}.get(mode, "sent")
        command = IssuedCommand(
            f"{self.epoch:x}-{self._number}",
            action,
            dict(target),
            dict(expected),
            dict(set_),
            dict(undo),
            list(reason),
            mode,
            state=state,
        )
        self._commands[command.id] = command
        return command

    def publish(self, command: IssuedCommand, now_ns: int) -> Output:
        """The command, signed, with a lease (or time to be approved) from now: its first statement or a renewal."""
        for_ns = self._approval_ns if command.mode == "approve" else self._lease_ns
        assert for_ns > 0 and command.undo, "no command without a lease, no lease without an undo"
        command.issued_at_ns = max(now_ns, command.issued_at_ns + 1)
        command.expires_at_ns = command.issued_at_ns + for_ns
        command.began_at_ns = command.began_at_ns or now_ns
        command.said += 1
        data = self._signer.sign(
            {  # as `Command.as_data`, but for the copy of a large watch: `set` is replaced, never changed
                "id": command.id,
                "epoch": self.epoch,
                "issued_at_ns": command.issued_at_ns,
                "expires_at_ns": command.expires_at_ns,
                "mode": command.mode,
                "action": command.action,
                "target": command.target,
                "expected": command.expected,
                "set": command.set,
                "undo": command.undo,
                "reason": list(command.reason),
            }
        )
        return Output(
            COMMAND.name, command.host, Event(COMMAND.name, SOURCE, f"{command.id}-{command.said}", now_ns, data)
        )

    def take(self, outcome: Outcome, now_ns: int) -> IssuedCommand | None:
        """Take an agent's outcome; the command, or None when it is another's or the outcome is no news."""
        command = self._commands.get(outcome.command)
        if command is None or outcome.host != command.host or outcome.at_ns < command.seen_ns:
            return None
        if command.mode != "enforce":
            return None
        command.seen_ns = outcome.at_ns
        command.why = outcome.why
        command.state = _STATE[outcome.state]
        if command.state == "over":
            command.over_at_ns = now_ns
        return command

    def end(self, command: IssuedCommand, now_ns: int) -> None:
        """It is not renewed any more."""
        if command.state != "over":
            command.state, command.over_at_ns = "over", now_ns

    def forget(self, before_ns: int) -> None:
        """Drop what has been over, or not renewed, since before `before_ns`."""
        for command in list(self._commands.values()):
            at_ns = command.over_at_ns if command.state == "over" else command.expires_at_ns
            if at_ns < before_ns:
                del self._commands[command.id]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "epoch": self.epoch,
            "number": self._number,
            "leases": [asdict(command) for command in self._commands.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`, its epoch included: the stage then repeats what was published."""
        self.epoch = state["epoch"]
        self._number = state["number"]
        self._commands = {row["id"]: IssuedCommand(**row) for row in state["leases"]}


def outcome_event(outcome: Outcome, number: int, now_ns: int) -> Output:
    """An outcome by the controller itself; `number` is unique among them."""
    event = Event(OUTCOME.name, SOURCE, f"{outcome.command}-said-{number}", now_ns, outcome.as_data())
    return Output(OUTCOME.name, outcome.command, event)


_LONGEST_PAUSE_NS: Final = 300 * NS_PER_S
_MOST_REFUSALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why nothing is done: a rule's name, and a sentence."""

    rule: str
    why: str


class Refusals:
    """Refused proposals as outcomes of host ``controller``."""

    def __init__(self, config: ActuateConfig) -> None:
        self._every_ns = ns(config.refused_every_s)
        self._published: dict[tuple[str, str], tuple[int, int, int]] = {}
        """(target, rule) to (published at, met last at, pause until it is published again), ns."""
        self._number = 0

    def refuse(
        self, action: str, target: Mapping[str, Any], doubt: Doubt, reason: tuple[str, ...], now_ns: int
    ) -> list[Output]:
        """The refusal as an outcome, unless it was published lately."""
        key = (f"{action} {target.get('type')} {target.get('id')}", doubt.rule)
        published_at_ns, met_ns, pause_ns = self._published.get(key, (-1, -1, self._every_ns))
        if published_at_ns >= 0 and now_ns - published_at_ns < pause_ns:
            self._published[key] = (published_at_ns, now_ns, pause_ns)
            return []
        lasting = published_at_ns >= 0 and now_ns - met_ns < self._every_ns
        pause_ns = min(2 * pause_ns, _LONGEST_PAUSE_NS) if lasting else self._every_ns
        if key not in self._published and len(self._published) >= _MOST_REFUSALS:
            return []
        self._published[key] = (now_ns, now_ns, pause_ns)
        return [self.publish(f"proposal {key[0]}", "refused", doubt, action, target, reason, now_ns)]

    def publish(
        self,
        command_id: str,
        state: str,
        doubt: Doubt,
        action: str,
        target: Mapping[str, Any],
        reason: tuple[str, ...],
        now_ns: int,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Output:
        """An outcome of the controller's own, always published."""
        self._number += 1
        why = f"{doubt.rule}: {doubt.why}"
        outcome = Outcome(
            command_id,
            state,
            why,
            HOST,
            now_ns,
            action,
            dict(target),
            before=before or {},
            after=after or {},
            reason=reason,
        )
        return outcome_event(outcome, self._number, now_ns)

    def forget(self, before_ns: int) -> None:
        """Drop what was not met since."""
        self._published = {key: row for key, row in self._published.items() if row[1] >= before_ns}

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {"told": [[*key, *row] for key, row in self._published.items()], "number": self._number}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._published = {(a, b): (published, met, pause) for a, b, published, met, pause in state["told"]}
        self._number = state["number"]
