"""Silences, labels and lifts of operators, as the controller takes them up; what each means is in `records.silences`.

A silence changes who is told of findings; only with ``maintenance`` does it change what the loop does: its guard passes
nothing new at what the silence covers (`guard.maintenance`). A label is checked and answered, and changes nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sdfstream.actuate.guard import GuardFacts
from sdfstream.actuate.refusals import Doubt
from sdfstream.errors import FormatError
from sdfstream.records.command import Override
from sdfstream.records.silences import FALSE_ALARM, LABEL, LABELS, LIFT, MOST_TEXT, SILENCE, silence_of, text_of

MOST_SILENCES: Final = 1_000
"""In force or planned, at a time."""

Answer = tuple[Mapping[str, Any], Mapping[str, Any], str]
"""Target and ``after`` of the outcome, and its sentence."""


class Silencing:
    """Takes up what operators say of findings."""

    def __init__(self, facts: GuardFacts) -> None:
        self._facts = facts
        self._takers: dict[str, Callable[[Override, int], Doubt | Answer]] = {
            SILENCE: self._silence,
            LABEL: self._label,
            LIFT: self._lift,
        }

    def take(self, read: Override, now_ns: int) -> Doubt | Answer:
        """Take up a silence, label or lift at `now_ns`, bus time; why not, or what its outcome says."""
        try:
            return self._takers[read.what](read, now_ns)
        except FormatError as error:
            return Doubt("malformed", error.detail)

    def _silence(self, read: Override, now_ns: int) -> Doubt | Answer:
        silence = silence_of(read, now_ns)
        if len(self._facts.silences) >= MOST_SILENCES:
            return Doubt("budget", f"{MOST_SILENCES} silences are in force or planned")
        self._facts.silences.append(silence)
        about = "everything" if silence.type == "all" else f"{silence.type} {silence.name}"
        why = f"findings about {about} are shown as silenced meanwhile, and no alert tells of them"
        why += "; the loop starts nothing new there" if silence.maintenance else "; the loop goes on"
        return {"type": silence.type, "id": silence.name}, silence.as_after(), why

    def _label(self, read: Override, _: int) -> Doubt | Answer:
        kind, name = read.target.get("type"), read.target.get("id")
        if kind != "finding" or not isinstance(name, str) or not 0 < len(name) <= MOST_TEXT:
            return Doubt("malformed", "the target of a label is a finding, by its id")
        cause, note = read.set.get("cause"), text_of(read.set, "note")
        if cause not in LABELS:
            return Doubt("unknown-cause", f"set.cause is one of {', '.join(LABELS)}, not {cause!r}")
        after = {"cause": cause, "operator": read.operator} | ({"note": note} if note else {})
        was = "was a false alarm" if cause == FALSE_ALARM else f"was {cause}"
        return {"type": "finding", "id": name}, after, f"finding {name} {was}, says {read.operator}"

    def _lift(self, read: Override, _: int) -> Doubt | Answer:
        kind, name = read.target.get("type"), read.target.get("id")
        if kind != "override" or not isinstance(name, str) or not name:
            return Doubt("malformed", "the target of a lift is an override, by its id")
        if not (what := self._facts.lift(name)):
            return Doubt("unknown-override", f"no silence or hold {name!r} is in force or planned")
        return {"type": "override", "id": name}, {"lifted": what, "operator": read.operator}, f"{what} {name} is over"
