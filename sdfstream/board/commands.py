"""Commands of the control loop with their outcomes, from the command, outcome and override topics.

A command is known by its id; a renewal repeats it, outcomes follow. An outcome without a command is a proposal that
the controller's guard refused; one whose target names an override answers that. Bounded: commands that are over are
forgotten first.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.errors import FormatError
from sdfstream.records.command import Command, Outcome, Override, command, outcome, override
from sdfstream.records.message import Event, Message
from sdfstream.records.silences import LIFT, WORDS
from sdfstream.records.topics import COMMAND, OUTCOME, OVERRIDE
from sdfstream.stats import Counters

MOST_COMMANDS: Final = 5_000
MOST_OUTCOMES: Final = 16
"""Outcomes remembered of one command, the newest; the first that says ``applied`` stays besides."""
MOST_OVERRIDES: Final = 500
IN_FORCE: Final = ("accepted", "applied")
WAITING: Final = {
    "observe": "not done: mode observe",
    "dry-run": "not done: mode dry-run",
    "approve": "waits for approval",
    "enforce": "no answer yet",
}
"""State, in words, of a command without an outcome, by its mode."""


@dataclass(slots=True)
class CommandRecord:
    """One command, or one refused proposal."""

    id: str
    command: Command | None = None
    issued_at_ns: int | None = None
    """Of its first statement."""
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    """(bus time, outcome), in order."""
    applied: tuple[int, Outcome] | None = None
    """The first with state ``applied``."""
    measured: Outcome | None = None
    """The last with throughput before and after."""
    is_answer: bool = False
    """No command: its outcomes answer an override of this id."""

    @property
    def target(self) -> Mapping[str, Any]:
        """Type and id of what the command changes."""
        return self.command.target if self.command else self.outcomes[-1][1].target if self.outcomes else {}

    @property
    def job(self) -> str | None:
        """Job of the target, where it has one."""
        return self.target.get("job")

    @property
    def reasons(self) -> tuple[str, ...]:
        """Finding ids."""
        return self.command.reason if self.command else self.outcomes[-1][1].reason if self.outcomes else ()

    @property
    def changed_ns(self) -> int:
        """Bus time of its last outcome, or the time of issue where that is later."""
        outcome_ns = self.outcomes[-1][0] if self.outcomes else 0
        return max(outcome_ns, self.issued_at_ns or 0)

    @property
    def is_enforced(self) -> bool:
        """Whether agents are to obey the command."""
        return self.command is not None and self.command.mode == "enforce"


class CommandTable:
    """Commands, outcomes and overrides; `take` messages, ask for views."""

    reads: tuple[str, ...] = (COMMAND.name, OUTCOME.name, OVERRIDE.name)

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._records: dict[str, CommandRecord] = {}
        self._overrides: dict[str, tuple[int, Override]] = {}
        self.outcomes_read: Counter[str] = Counter()
        """How many outcomes were read, by state."""
        self.mode: dict[str, Any] | None = None
        """The last mode that an operator set: mode, operator, at_ns; None: the mode of the settings is in force."""

    def take(self, message: Message) -> None:
        """Take one message.

        Raises
        ------
        FormatError
            It is no command, outcome or override.
        """
        if not isinstance(message.body, Event):
            raise FormatError("form", f"a batch on {message.topic}")
        data, at_ns = message.body.data, message.bus_at_ns
        if message.topic == COMMAND.name:
            self._take_command(command(data), at_ns)
        elif message.topic == OUTCOME.name:
            stated = outcome(data)
            self.outcomes_read[stated.state] += 1
            self._take_outcome(stated, at_ns)
        else:
            self._overrides[str(data.get("id"))] = at_ns, override(data)
            while len(self._overrides) > MOST_OVERRIDES:
                del self._overrides[next(iter(self._overrides))]

    def views(
        self,
        now_ns: int,
        job: str | None = None,
        *,
        reasons: Collection[str] = (),
        since_ns: int | None = None,
        most: int = MOST_COMMANDS,
    ) -> list[dict[str, Any]]:
        """Commands, the newest first, without answers to overrides.

        Parameters
        ----------
        now_ns : int, ns since the Unix epoch, bus time
        job : str, optional
            Only those that aim at this job, or stand on one of `reasons` (finding ids).
        since_ns : int, optional
            Only those that began or changed since, or are in force.
        most : int
            Not more than these, the newest.
        """
        chosen = [
            (record.changed_ns, record.id, record)
            for record in self._records.values()
            if not record.is_answer
            and record.id not in self._overrides
            and (job is None or record.job == job or not set(reasons).isdisjoint(record.reasons))
            and (since_ns is None or record.changed_ns >= since_ns or is_in_force(record, now_ns))
        ]
        newest = heapq.nlargest(most, chosen, key=lambda c: c[:2])
        found = [view(record, now_ns) for _, _, record in newest]
        return sorted(found, key=lambda v: (-int(v["began_at_ns"]), v["id"]))

    def in_force(self, now_ns: int) -> Counter[str | None]:
        """How many commands are in force, by job."""
        return Counter(e.job for e in self._records.values() if is_in_force(e, now_ns) and e.is_enforced)

    def waiting(self) -> int:
        """How many commands wait for approval."""
        records = self._records.values()
        return sum(e.command is not None and e.command.mode == "approve" and not e.outcomes for e in records)

    def outcomes(self, ids: Iterable[str], since_ns: int) -> list[dict[str, Any]]:
        """Outcomes of these commands (or overrides) that entered the bus since `since_ns`, in order."""
        found = [
            (at_ns, one.as_data() | {"said_at_ns": at_ns})
            for name in ids
            for at_ns, one in (self._records[name].outcomes if name in self._records else ())
            if at_ns >= since_ns
        ]
        return [data for _, data in sorted(found, key=lambda f: f[0])]

    def overrides(self, now_ns: int) -> list[dict[str, Any]]:
        """Overrides that have not lapsed nor were lifted, the newest first, without what is said of findings.

        Whether they are trusted is the controller's to say.
        """
        live = [
            (at_ns, one.as_data() | {"said_at_ns": at_ns})
            for at_ns, one in self._overrides.values()
            if one.expires_at_ns > now_ns and one.what not in WORDS
        ]
        return [data for _, data in sorted(live, key=lambda f: -f[0])]

    def _take_command(self, issued: Command, at_ns: int) -> None:
        record = self._record(issued.id, at_ns)
        if record.command is None or issued.issued_at_ns > record.command.issued_at_ns:
            record.command = issued
        record.issued_at_ns = min(record.issued_at_ns or issued.issued_at_ns, issued.issued_at_ns)

    def _take_outcome(self, new: Outcome, at_ns: int) -> None:
        answered = new.target.get("override")
        record = self._record(str(answered or new.command), at_ns)
        record.is_answer |= bool(answered)
        record.outcomes.append((at_ns, new))
        del record.outcomes[:-MOST_OUTCOMES]
        if gain_of(new) is not None:
            record.measured = new
        if new.state == "applied" and record.applied is None:
            record.applied = at_ns, new
            self._note_taken(record.id, at_ns)

    def _note_taken(self, name: str, at_ns: int) -> None:
        """The override `name` is carried out: of a mode or a lift something follows."""
        _, given = self._overrides.get(name, (0, None))
        if given is not None and given.what == "mode":
            self.mode = {"mode": given.set.get("mode"), "operator": given.operator, "at_ns": at_ns}
        elif given is not None and given.what == LIFT:
            self._overrides.pop(str(given.target.get("id")), None)

    def _record(self, name: str, at_ns: int) -> CommandRecord:
        record = self._records.setdefault(name, CommandRecord(name))
        if len(self._records) > MOST_COMMANDS:
            over = (e.id for e in self._records.values() if e.id != name and not is_in_force(e, at_ns))
            gone = next(over, None) or next(iter(self._records))
            del self._records[gone]
            self._counters.add("forgotten", "commands")
        return record


def is_in_force(record: CommandRecord, now_ns: int) -> bool:
    """Whether its lease runs and no outcome has ended it."""
    if record.command is None or record.command.expires_at_ns <= now_ns:
        return False
    return not record.outcomes or record.outcomes[-1][1].state in IN_FORCE


def view(record: CommandRecord, now_ns: int) -> dict[str, Any]:
    """One command as plain JSON; ``state`` is its last outcome's, or says why there is none."""
    left_ns = record.command.expires_at_ns - now_ns if record.command and is_in_force(record, now_ns) else None
    return {
        "id": record.id,
        "target": dict(record.target),
        "job": record.job,
        "reason": list(record.reasons),
        "lease_left_ns": left_ns,
        "in_force": left_ns is not None and record.is_enforced,
        "states": list(dict.fromkeys(o.state for _, o in record.outcomes)),
        **_command_view(record),
        **_outcome_view(record),
        **_effect_view(record),
    }


def _command_view(record: CommandRecord) -> dict[str, Any]:
    """The command itself; of a refused proposal, which has none, the action and time of its outcome."""
    issued = record.command
    if issued is None:
        at_ns, last = record.outcomes[-1] if record.outcomes else (0, None)
        return dict.fromkeys(("mode", "set", "issued_at_ns", "expires_at_ns")) | {
            "began_at_ns": record.issued_at_ns if record.issued_at_ns is not None else at_ns,
            "action": last.action if last else "",
        }
    return {
        "began_at_ns": record.issued_at_ns,
        "action": issued.action,
        "mode": issued.mode,
        "set": dict(issued.set),
        "issued_at_ns": issued.issued_at_ns,
        "expires_at_ns": issued.expires_at_ns,
    }


def _outcome_view(record: CommandRecord) -> dict[str, Any]:
    """The last outcome, or what the command waits for."""
    if not record.outcomes:
        waits = WAITING.get(record.command.mode, record.command.mode) if record.command else None
        return dict.fromkeys(("state", "why", "said_by", "said_at_ns")) | {"waits": waits}
    at_ns, last = record.outcomes[-1]
    return {"state": last.state, "waits": None, "why": last.why, "said_by": last.host, "said_at_ns": at_ns}


def _effect_view(record: CommandRecord) -> dict[str, Any]:
    """When the command was first applied, and throughput before and after."""
    bus_at_ns, applied = record.applied or (None, None)
    measured = record.measured or applied
    return {
        "applied_at_ns": applied.applied_at_ns if applied else None,
        "applied_bus_at_ns": bus_at_ns,
        "before": dict(measured.before) if measured else None,
        "after": dict(measured.after) if measured else None,
        "gain": gain_of(measured) if measured else None,
    }


def gain_of(measured: Outcome) -> float | None:
    """Throughput after over throughput before, where both were measured."""
    before, after = _bps(measured.before), _bps(measured.after)
    return after / before if before and after is not None else None


def _bps(measured: Mapping[str, Any]) -> float | None:
    value = measured.get("throughput_bps")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
