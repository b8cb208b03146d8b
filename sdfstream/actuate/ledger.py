"""Every command in force: its lease, its renewals and what became of it.

======== ================================================================================
state    meaning
======== ================================================================================
waiting  published with mode ``approve``; a person has to agree
told     published with mode ``dry-run``; agents do not obey, nothing more happens
approved a person agreed; it is looked at once more and then sent
sent     published with mode ``enforce``; no answer yet
accepted the agent has it; a failover is armed
applied  done: the queue pair is on another path, or limited
held     its lease is over or it was undone, but the agent leaves it where it is
over     expired, undone, refused or failed: it is forgotten after a while
======== ================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sdfstream.records.command import Outcome
from sdfstream.records.message import Event, Output
from sdfstream.records.signature import Signer
from sdfstream.records.topics import COMMAND, OUTCOME

SOURCE: Final = "actuate"
"""Source of the stage's events."""
HOST: Final = "controller"
"""Host of the stage's outcomes."""

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
class Lease:
    """One command of ours."""

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
    """What the agent said last."""
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


class Ledger:
    """Commands by id. `epoch` fences: agents refuse any lower than the highest they have seen."""

    def __init__(self, signer: Signer, epoch: int) -> None:
        self._signer = signer
        self.epoch = epoch
        self._leases: dict[str, Lease] = {}
        self._number = 0

    def __iter__(self) -> Iterator[Lease]:
        return iter(self._leases.values())

    def get(self, command: str) -> Lease | None:
        """The command of this id; None: not ours, or long over."""
        return self._leases.get(command)

    def __len__(self) -> int:
        return len(self._leases)

    def in_force(self) -> int:
        """Commands in force."""
        return sum(lease.in_force for lease in self._leases.values())

    def open(
        self,
        action: str,
        target: Mapping[str, Any],
        expected: Mapping[str, Any],
        set_: Mapping[str, Any],
        undo: Mapping[str, Any],
        reason: tuple[str, ...],
        mode: str,
    ) -> Lease:
        """A new command; `say` publishes it."""
        self._number += 1
        state = {"dry-run": "told", "approve": "waiting"}.get(mode, "sent")
        lease = Lease(
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
        self._leases[lease.id] = lease
        return lease

    def say(self, lease: Lease, now_ns: int, for_ns: int) -> Output:
        """The command, signed, in force for `for_ns` from now: its first statement or a renewal."""
        assert for_ns > 0 and lease.undo, "no command without a lease, no lease without an undo"
        lease.issued_at_ns = max(now_ns, lease.issued_at_ns + 1)
        lease.expires_at_ns = lease.issued_at_ns + for_ns
        lease.began_at_ns = lease.began_at_ns or now_ns
        lease.said += 1
        data = self._signer.sign(
            {  # as `Command.as_data`, but for the copy of a large watch: `set` is replaced, never changed
                "id": lease.id,
                "epoch": self.epoch,
                "issued_at_ns": lease.issued_at_ns,
                "expires_at_ns": lease.expires_at_ns,
                "mode": lease.mode,
                "action": lease.action,
                "target": lease.target,
                "expected": lease.expected,
                "set": lease.set,
                "undo": lease.undo,
                "reason": list(lease.reason),
            }
        )
        return Output(COMMAND.name, lease.host, Event(COMMAND.name, SOURCE, f"{lease.id}-{lease.said}", now_ns, data))

    def take(self, outcome: Outcome, now_ns: int) -> Lease | None:
        """Take what an agent says of a command; None when that is no news of a command of ours."""
        lease = self._leases.get(outcome.command)
        if lease is None or outcome.host != lease.host or outcome.at_ns < lease.seen_ns:
            return None
        if lease.mode != "enforce":
            return None
        lease.seen_ns = outcome.at_ns
        lease.why = outcome.why
        lease.state = _STATE[outcome.state]
        if lease.state == "over":
            lease.over_at_ns = now_ns
        return lease

    def end(self, lease: Lease, now_ns: int) -> None:
        """Ours no more: it is not renewed."""
        if lease.state != "over":
            lease.state, lease.over_at_ns = "over", now_ns

    def forget(self, before_ns: int) -> None:
        """Drop what has been over, or not renewed, since before `before_ns`."""
        for lease in list(self._leases.values()):
            at_ns = lease.over_at_ns if lease.state == "over" else lease.expires_at_ns
            if at_ns < before_ns:
                del self._leases[lease.id]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {
            "epoch": self.epoch,
            "number": self._number,
            "leases": [asdict(lease) for lease in self._leases.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`, its epoch included: whoever goes on from it says what was said before."""
        self.epoch = state["epoch"]
        self._number = state["number"]
        self._leases = {row["id"]: Lease(**row) for row in state["leases"]}


def outcome_event(outcome: Outcome, number: int, now_ns: int) -> Output:
    """What the controller itself has to say, `number` being unique among its statements."""
    event = Event(OUTCOME.name, SOURCE, f"{outcome.command}-said-{number}", now_ns, outcome.as_data())
    return Output(OUTCOME.name, outcome.command, event)
