"""Silences and labels of findings, from the controller's outcomes: it alone says which overrides count.

Only an outcome that answers an override seen before counts: agents write outcomes too, but only operators overrides, so
that none can silence what is found about it. Sans-IO and bounded; messages may come more than once, and a lift before
the silence that it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.errors import FormatError
from sdfstream.records.command import CONTROLLER, outcome
from sdfstream.records.message import Event, Message
from sdfstream.records.silences import LABEL, LIFT, SILENCE, WORDS, FindingSilence, Scope, scopes_of, silence_from
from sdfstream.records.topics import OVERRIDE
from sdfstream.stats import Counters

MOST_SILENCES: Final = 2_000
"""Remembered; those that are over are forgotten first. The controller takes half as many."""
MOST_LABELS: Final = 10_000
MOST_ASKED: Final = 20_000
STATES: Final = ("planned", "in-force", "lifted", "over")
"""Of a silence."""


@dataclass(slots=True)
class FindingNotes:
    """Silences, lifts and labels; `take` outcomes, then `mark` findings."""

    counters: Counters
    _asked: dict[str, str] = field(default_factory=dict)
    """Overrides that say something of findings, by id, and what; the newest last."""
    _silences: dict[str, tuple[FindingSilence, int]] = field(default_factory=dict)
    """By the override's id, with the bus time of its outcome."""
    _lifts: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Id of a silence (or hold) to when it was lifted, bus time, and by whom."""
    _labels: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By finding id."""
    _by_scope: dict[Scope, list[str]] = field(default_factory=dict)

    def take(self, message: Message) -> None:
        """Take an override or an outcome; those that are about other things change nothing.

        Raises
        ------
        FormatError, KeyError, TypeError, ValueError
            It is neither, or says a silence that is none.
        """
        if not isinstance(message.body, Event):
            raise FormatError("form", f"a batch on {message.topic}")
        data, at_ns = message.body.data, message.bus_at_ns
        if message.topic == OVERRIDE.name:
            if data.get("what") in WORDS:
                self._asked[str(data["id"])] = str(data["what"])
                self._shed(self._asked, MOST_ASKED)
            return
        if data.get("action") not in WORDS:
            return
        said = outcome(data)
        if said.host != CONTROLLER or said.state != "applied":
            return
        if self._asked.get(str(said.target.get("override"))) != said.action:
            raise FormatError("unasked", f"no override {str(said.target.get('override'))[:64]!r} asked for it")
        if said.action == SILENCE:
            self._take_silence(silence_from(said), at_ns)
        elif said.action == LIFT:
            self._lifts.setdefault(str(said.target["id"]), (at_ns, str(said.after["operator"])))
            self._shed(self._lifts, MOST_SILENCES)
        elif said.action == LABEL:
            self._take_label(str(said.target["id"]), said.after, at_ns)

    def take_all(self, messages: Iterable[Message]) -> None:
        """Take messages; one that cannot be read is counted and changes nothing else."""
        for message in messages:
            try:
                self.take(message)
            except (FormatError, KeyError, TypeError, ValueError) as error:
                self.counters.add("refused", f"{message.topic}.{getattr(error, 'reason', type(error).__name__)}")

    def mark(self, findings: Iterable[Mapping[str, Any]], now_ns: int) -> list[dict[str, Any]]:
        """The findings with ``silence`` and ``label``, null where there is none; what is resolved needs no silence."""
        return [
            {**f, "silence": self._silence_view(f, now_ns), "label": self._labels.get(str(f.get("id")))}
            for f in findings
        ]

    def silences(self, now_ns: int) -> list[dict[str, Any]]:
        """Silences that are planned, in force, or over and remembered."""
        return [self._view(silence, at_ns, now_ns) for silence, at_ns in self._silences.values()]

    def silence(self, override: str) -> FindingSilence | None:
        """The silence that an override has begun; None: none that is known."""
        known = self._silences.get(override)
        return None if known is None else known[0]

    def _take_silence(self, silence: FindingSilence, at_ns: int) -> None:
        if silence.id in self._silences:
            return
        self._silences[silence.id] = silence, at_ns
        self._by_scope.setdefault(silence.scope, []).append(silence.id)
        if len(self._silences) > MOST_SILENCES:
            over = (key for key in self._silences if self._state(self._silences[key][0], at_ns) in ("lifted", "over"))
            gone = next(over, None) or next(iter(self._silences))
            scope = self._silences.pop(gone)[0].scope
            self._by_scope[scope].remove(gone)
            self.counters.add("forgotten", "silences")

    def _take_label(self, finding: str, after: Mapping[str, Any], at_ns: int) -> None:
        if (known := self._labels.pop(finding, None)) is not None and known["at_ns"] > at_ns:
            self._labels[finding] = known
            return
        note = str(after.get("note") or "")
        self._labels[finding] = {
            "cause": str(after["cause"]), "by": str(after["operator"]), "note": note, "at_ns": at_ns,
        }  # fmt: skip
        self._shed(self._labels, MOST_LABELS)

    def _shed(self, held: dict[str, Any], most: int) -> None:
        if len(held) > most:
            del held[next(iter(held))]
            self.counters.add("forgotten", "finding-notes")

    def _silence_view(self, finding: Mapping[str, Any], now_ns: int) -> dict[str, Any] | None:
        """Of the silences that cover the finding now the one that ends last."""
        if not self._by_scope or finding.get("status") == "resolved":
            return None
        known = (self._silences[key][0] for scope in scopes_of(finding) for key in self._by_scope.get(scope, ()))
        holding = [s for s in known if s.is_of(finding) and self._state(s, now_ns) == "in-force"]
        if not holding:
            return None
        last = max(holding, key=lambda s: (s.until_at_ns, s.id))
        return {
            "id": last.id,
            "by": last.operator,
            "until_ns": last.until_at_ns,
            "reason": last.reason,
            "maintenance": last.maintenance,
        }

    def _state(self, silence: FindingSilence, now_ns: int) -> str:
        lifted_at_ns, _ = self._lifts.get(silence.id, (now_ns + 1, ""))
        if lifted_at_ns <= now_ns:
            return "lifted"
        return "planned" if now_ns < silence.from_at_ns else "in-force" if silence.in_force(now_ns) else "over"

    def _view(self, silence: FindingSilence, at_ns: int, now_ns: int) -> dict[str, Any]:
        state = self._state(silence, now_ns)
        lifted_at_ns, lifted_by = self._lifts.get(silence.id, (None, None)) if state == "lifted" else (None, None)
        return {
            "id": silence.id,
            "state": state,
            "type": silence.type,
            "subject": silence.name,
            "kinds": list(silence.kinds),
            "from_at_ns": silence.from_at_ns,
            "until_ns": silence.until_at_ns,
            "by": silence.operator,
            "reason": silence.reason,
            "maintenance": silence.maintenance,
            "said_at_ns": at_ns,
            "lifted_at_ns": lifted_at_ns,
            "lifted_by": lifted_by,
        }
