"""What the controller has published: every command in force, its renewals and what became of it.

`Commands` is how engines issue one: asked of the guard, published under a lease, renewed, undone; or refused. The
`CommandLedger` has what was issued.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from sdfstream.actuate.config import ActuateConfig, ns
from sdfstream.actuate.guard import GuardFacts, Proposal, check, gone_out
from sdfstream.actuate.refusals import SOURCE, Doubt, Refusals
from sdfstream.records.command import Outcome
from sdfstream.records.fabric import QueuePair
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import COMMAND
from sdfstream.stats import Counters

DRY_RUN: Final = "told"
"""State of a command that agents do not obey; its word in snapshots."""
PEER: Final = "peer"
"""Part of a failover that the receiving end of a kernel flow does."""
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


_FIELDS: Final = tuple(f.name for f in fields(IssuedCommand))
"""Their values are plain; to copy them deep (`asdict`) takes ten times as long, and a stage waits for it."""


class CommandLedger:
    """Commands by id. `epoch` fences: agents refuse any lower than the highest they have seen."""

    def __init__(self, config: ActuateConfig, signer: Signer, epoch: int) -> None:
        self._lease_ns, self._approval_ns = config.lease_ns, ns(config.approval_s)
        self._signer = signer
        self.epoch = epoch
        self._commands: dict[str, IssuedCommand] = {}
        self._of_qp: dict[str, list[IssuedCommand]] = {}
        self._number = 0

    def __iter__(self) -> Iterator[IssuedCommand]:
        return iter(self._commands.values())

    def get(self, command_id: str) -> IssuedCommand | None:
        """The command of this id; None: not this controller's, or long over."""
        return self._commands.get(command_id)

    def __len__(self) -> int:
        return len(self._commands)

    def of_qp(self, qp: str) -> Sequence[IssuedCommand]:
        """The commands about a queue pair, in order of opening."""
        return self._of_qp.get(qp, ())

    def is_received(self, pair: QueuePair, mode: str) -> bool:
        """Whether the receiving end is prepared for other source ports of `pair`, as far as `mode` needs it."""
        if pair.steering != "kernel" or mode != "enforce":
            return True
        return any(command.set.get("part") == PEER and command.state == "applied" for command in self.of_qp(pair.qp))

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
        self._of_qp.setdefault(command.qp, []).append(command)
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
        self._group_by_qp()

    def _group_by_qp(self) -> None:
        self._of_qp = {}
        for command in self._commands.values():
            self._of_qp.setdefault(command.qp, []).append(command)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "epoch": self.epoch,
            "number": self._number,
            "leases": [{name: getattr(command, name) for name in _FIELDS} for command in self._commands.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`, its epoch included: the stage then repeats what was published."""
        self.epoch = state["epoch"]
        self._number = state["number"]
        self._commands = {row["id"]: IssuedCommand(**row) for row in state["leases"]}
        self._group_by_qp()


class Commands:
    """What engines do together: issue commands under the guard, renew and undo them, or say why nothing is done."""

    def __init__(
        self,
        config: ActuateConfig,
        counters: Counters,
        ledger: CommandLedger,
        facts: GuardFacts,
        refusals: Refusals,
    ) -> None:
        self._config, self._counters = config, counters
        self._ledger, self._facts, self._refusals = ledger, facts, refusals

    def ban(self, qp: str, now_ns: int, path: int = 0) -> None:
        """Try nothing with the queue pair (on `path` alone, where one is given) for `config.path_ban_s`."""
        self._facts.ban(qp, now_ns + ns(self._config.path_ban_s), path)

    def refuse(self, proposal: Proposal, doubt: Doubt, now_ns: int) -> list[Output]:
        """Do not carry out the proposal; the outcome, unless it was published lately or nothing is to be published."""
        self._counters.add("refusals", doubt.rule)
        if self._facts.mode in ("off", "observe"):
            return []
        return self._refusals.refuse(proposal.action, proposal.owned.target, doubt, proposal.reason, now_ns)

    def open(
        self,
        proposal: Proposal,
        expected: Mapping[str, Any],
        set_: Mapping[str, Any],
        undo: Mapping[str, Any],
        now_ns: int,
    ) -> tuple[IssuedCommand | None, list[Output]]:
        """Publish a command for a proposal that passed the guard, in the mode that is in force."""
        mode = self._facts.mode
        if mode in ("off", "observe"):
            self._counters.add("observed", proposal.action)
            return None, []
        command = self._ledger.open(proposal.action, proposal.owned.target, expected, set_, undo, proposal.reason, mode)
        if mode != "approve":
            gone_out(proposal, self._facts, now_ns)
        return command, [self.publish(command, now_ns)]

    def publish(self, command: IssuedCommand, now_ns: int) -> Output:
        """A statement of a command: its first, or a renewal."""
        self._counters.add("commands", f"{command.action}-{command.mode}")
        return self._ledger.publish(command, now_ns)

    def release(self, command: IssuedCommand, proposal: Proposal, now_ns: int) -> Doubt | None:
        """A person agreed to `command`: ask the guard once more, and let it go out if nothing speaks against it."""
        doubt = check(proposal, self._facts, now_ns)
        if doubt is None and proposal.owned.pair.path != command.expected.get("path", proposal.owned.pair.path):
            doubt = Doubt("unexpected-state", "it is on another path by now")
        if doubt is not None:
            self._ledger.end(command, now_ns)
            return doubt
        command.mode, command.state = "enforce", "sent"
        gone_out(proposal, self._facts, now_ns)
        return None

    def undo(self, command: IssuedCommand, reason: tuple[str, ...], now_ns: int) -> list[Output]:
        """End a command before its lease does; it is not renewed any more."""
        enforced = command.mode == "enforce" and command.in_force
        self._ledger.end(command, now_ns)
        if not enforced:
            return []
        ending = self._ledger.open(
            "undo", command.target, {}, {"command": command.id}, dict(command.undo), reason, "enforce"
        )
        return [self.publish(ending, now_ns)]

    def goes_on(self, command: IssuedCommand, now_ns: int) -> bool:
        """Whether `command` may go on in the mode that is in force; ends it when not."""
        if command.state == "over":
            return False
        mode = self._facts.mode
        fits = mode in ("enforce", "approve") if command.mode == "enforce" else command.mode == mode
        over = command.state == "waiting" and now_ns >= command.expires_at_ns
        if not fits or over:
            self._ledger.end(command, now_ns)
        return fits and not over

    def count_result(self, bad: bool, now_ns: int) -> list[Output]:
        """Count a command that went well or wrong; an outcome when that opens the breaker."""
        if not self._facts.breaker.note(bad, now_ns):
            return []
        self._counters.add("breaker", "opened")
        wrong = sum(mark for _, mark in self._facts.breaker.marks)
        doubt = Doubt(
            "breaker",
            f"{wrong} of {len(self._facts.breaker.marks)} commands within {self._config.breaker_window_s:g} s failed "
            "or were taken back; nothing new is done until an operator's mode override",
        )
        return [self._refusals.publish("breaker", "refused", doubt, "", {"type": "job", "id": "*"}, (), now_ns)]
