"""What the loop did: every command with what became of it, from the command, outcome and override topics.

A command is known by its id; a renewal repeats it, outcomes follow. An outcome without a command is a proposal that
the controller's guard refused; one whose target names an override answers that. Bounded: commands that are over go
first.
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
"""What a command is that nobody has answered, by its mode."""


@dataclass(slots=True)
class Entry:
    """One command, or one refused proposal."""

    id: str
    command: Command | None = None
    issued_at_ns: int | None = None
    """Of its first statement."""
    outcomes: list[tuple[int, Outcome]] = field(default_factory=list)
    """(bus time, outcome), in order."""
    applied: tuple[int, Outcome] | None = None
    """The first that said ``applied``."""
    measured: Outcome | None = None
    """The last that says throughput before and after."""
    is_answer: bool = False
    """No command: its outcomes answer an override of this id."""

    @property
    def target(self) -> Mapping[str, Any]:
        """What it is done to."""
        return self.command.target if self.command else self.outcomes[-1][1].target if self.outcomes else {}

    @property
    def job(self) -> str | None:
        """Whose queue pair it is done to."""
        return self.target.get("job")

    @property
    def reasons(self) -> tuple[str, ...]:
        """Finding ids."""
        return self.command.reason if self.command else self.outcomes[-1][1].reason if self.outcomes else ()

    @property
    def changed_ns(self) -> int:
        """When it began or something became of it."""
        said = self.outcomes[-1][0] if self.outcomes else 0
        return max(said, self.issued_at_ns or 0)

    @property
    def is_enforced(self) -> bool:
        """Whether agents are to obey it."""
        return self.command is not None and self.command.mode == "enforce"


class CommandBook:
    """Commands, outcomes and overrides; `take` messages, ask for views."""

    reads: tuple[str, ...] = (COMMAND.name, OUTCOME.name, OVERRIDE.name)

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._entries: dict[str, Entry] = {}
        self._overrides: dict[str, tuple[int, Override]] = {}
        self.mode: dict[str, Any] | None = None
        """What the controller last took from an operator: mode, operator, at_ns; None: the mode of the settings."""

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
            self._take_outcome(outcome(data), at_ns)
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
        """Commands, the newest first; what answers an override is none.

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
            (entry.changed_ns, entry.id, entry)
            for entry in self._entries.values()
            if not entry.is_answer
            and entry.id not in self._overrides
            and (job is None or entry.job == job or not set(reasons).isdisjoint(entry.reasons))
            and (since_ns is None or entry.changed_ns >= since_ns or is_in_force(entry, now_ns))
        ]
        newest = heapq.nlargest(most, chosen, key=lambda c: c[:2])
        found = [view(entry, now_ns) for _, _, entry in newest]
        return sorted(found, key=lambda v: (-int(v["began_at_ns"]), v["id"]))

    def in_force(self, now_ns: int) -> Counter[str | None]:
        """How many commands are in force, by job."""
        return Counter(e.job for e in self._entries.values() if is_in_force(e, now_ns) and e.is_enforced)

    def waiting(self) -> int:
        """How many wait for a person."""
        entries = self._entries.values()
        return sum(e.command is not None and e.command.mode == "approve" and not e.outcomes for e in entries)

    def outcomes(self, ids: Iterable[str], since_ns: int) -> list[dict[str, Any]]:
        """Outcomes of these commands (or overrides) that entered the bus since `since_ns`, in order."""
        found = [
            (at_ns, said.as_data() | {"said_at_ns": at_ns})
            for name in ids
            for at_ns, said in (self._entries[name].outcomes if name in self._entries else ())
            if at_ns >= since_ns
        ]
        return [data for _, data in sorted(found, key=lambda f: f[0])]

    def overrides(self, now_ns: int) -> list[dict[str, Any]]:
        """Overrides that have not lapsed, the newest first; whether they are trusted is the controller's to say."""
        live = [
            (at_ns, said.as_data() | {"said_at_ns": at_ns})
            for at_ns, said in self._overrides.values()
            if said.expires_at_ns > now_ns
        ]
        return [data for _, data in sorted(live, key=lambda f: -f[0])]

    def _take_command(self, said: Command, at_ns: int) -> None:
        entry = self._entry(said.id, at_ns)
        if entry.command is None or said.issued_at_ns > entry.command.issued_at_ns:
            entry.command = said
        entry.issued_at_ns = min(entry.issued_at_ns or said.issued_at_ns, said.issued_at_ns)

    def _take_outcome(self, said: Outcome, at_ns: int) -> None:
        answered = said.target.get("override")
        entry = self._entry(str(answered or said.command), at_ns)
        entry.is_answer |= bool(answered)
        entry.outcomes.append((at_ns, said))
        del entry.outcomes[:-MOST_OUTCOMES]
        if gain_of(said) is not None:
            entry.measured = said
        if said.state == "applied" and entry.applied is None:
            entry.applied = at_ns, said
            self._note_mode(entry.id, at_ns)

    def _note_mode(self, name: str, at_ns: int) -> None:
        _, given = self._overrides.get(name, (0, None))
        if given is not None and given.what == "mode":
            self.mode = {"mode": given.set.get("mode"), "operator": given.operator, "at_ns": at_ns}

    def _entry(self, name: str, at_ns: int) -> Entry:
        entry = self._entries.setdefault(name, Entry(name))
        if len(self._entries) > MOST_COMMANDS:
            over = (e.id for e in self._entries.values() if e.id != name and not is_in_force(e, at_ns))
            gone = next(over, None) or next(iter(self._entries))
            del self._entries[gone]
            self._counters.add("forgotten", "commands")
        return entry


def is_in_force(entry: Entry, now_ns: int) -> bool:
    """Whether its lease runs and nobody said that nothing is left of it."""
    if entry.command is None or entry.command.expires_at_ns <= now_ns:
        return False
    return not entry.outcomes or entry.outcomes[-1][1].state in IN_FORCE


def view(entry: Entry, now_ns: int) -> dict[str, Any]:
    """One command as plain JSON; ``state`` is its last outcome's, or says why there is none."""
    said, last = entry.command, entry.outcomes[-1] if entry.outcomes else None
    outcome_said = last[1] if last else None
    applied = entry.applied[1] if entry.applied else None
    measured = entry.measured or applied
    left_ns = said.expires_at_ns - now_ns if said and is_in_force(entry, now_ns) else None
    return {
        "id": entry.id,
        "began_at_ns": entry.issued_at_ns if entry.issued_at_ns is not None else last[0] if last else 0,
        "action": said.action if said else (outcome_said.action if outcome_said else ""),
        "mode": said.mode if said else None,
        "target": dict(entry.target),
        "job": entry.job,
        "set": dict(said.set) if said else None,
        "reason": list(entry.reasons),
        "issued_at_ns": said.issued_at_ns if said else None,
        "expires_at_ns": said.expires_at_ns if said else None,
        "lease_left_ns": left_ns,
        "in_force": left_ns is not None and entry.is_enforced,
        "state": outcome_said.state if outcome_said else None,
        "waits": None if outcome_said or said is None else WAITING.get(said.mode, said.mode),
        "why": outcome_said.why if outcome_said else None,
        "said_by": outcome_said.host if outcome_said else None,
        "said_at_ns": last[0] if last else None,
        "applied_at_ns": applied.applied_at_ns if applied else None,
        "applied_bus_at_ns": entry.applied[0] if entry.applied else None,
        "before": dict(measured.before) if measured else None,
        "after": dict(measured.after) if measured else None,
        "gain": gain_of(measured) if measured else None,
        "states": list(dict.fromkeys(o.state for _, o in entry.outcomes)),
    }


def gain_of(said: Outcome) -> float | None:
    """Throughput after over throughput before, where both were measured."""
    before, after = _bps(said.before), _bps(said.after)
    return after / before if before and after is not None else None


def _bps(measured: Mapping[str, Any]) -> float | None:
    value = measured.get("throughput_bps")
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
