"""Causes that learn from operators' labels: what a finding says beside, and in place of, the rules' cause.

A label is an operator's override (``sdf.control.override.v1``, what ``label``) and the controller's outcome that it was
signed and accepted (``sdf.control.outcome.v1``, host ``controller``, action ``label``). It takes both: agents may write
outcomes too, but no overrides. Subject, severity and place of a finding never change by what was learned; its
confidence only falls.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sdfstream.detect.learned.kind import KindModel, LearnedCause
from sdfstream.detect.learned.labels import Labels
from sdfstream.errors import FormatError
from sdfstream.records.finding import Evidence, Finding
from sdfstream.records.message import Event
from sdfstream.records.silences import LABEL, LABELS
from sdfstream.stats import Counters

_MOST_ASKED: Final = 1000
_LONGEST: Final = 500
"""Characters of an id that a label may have."""
_SAID_BY: Final = ("actuate", "controller")
"""Source of the event and host of the outcome that an accepted label has."""


class LearnedCauses:
    """Labels, and a model for each kind of finding that has some.

    Models are no state: each is the labels of its kind learned in their order, anew where one was corrected or went.
    So a snapshot holds labels alone, and no version of a library matters to it. They are learned when the next such
    finding is stated, so a flood of labels costs no more than to store them.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._labels = Labels()
        self._asked: dict[str, tuple[str, str]] = {}
        """Override id to finding and cause: labels that the controller has not answered yet, the newest."""
        self._models: dict[str, KindModel] = {}
        """By kind; each has learned the labels up to the last statement about such a finding."""

    def take_override(self, event: Event) -> None:
        """Take an override; one that is no label, or a malformed one, is the controller's to answer."""
        data, target, asked = event.data, event.data.get("target"), event.data.get("set")
        if data.get("what") != LABEL or not isinstance(target, Mapping) or not isinstance(asked, Mapping):
            return
        name, finding, cause = data.get("id"), target.get("id"), asked.get("cause")
        if all(isinstance(text, str) and len(text) <= _LONGEST for text in (name, finding, cause)):
            self._asked.pop(str(name), None)
            self._asked[str(name)] = str(finding), str(cause)
            while len(self._asked) > _MOST_ASKED:
                del self._asked[next(iter(self._asked))]

    def take(self, event: Event) -> None:
        """Take an outcome; one that is no label is none of ours.

        Raises
        ------
        FormatError
            ``label``: it is one, and malformed; ``label-foreign``: not by the controller; ``label-unasked``: no
            operator asked for it; ``label-finding``: no such finding is known any more.
        """
        data = event.data
        if data.get("action") != LABEL or data.get("state") != "applied":
            return
        if (event.source, data.get("host")) != _SAID_BY:
            raise FormatError("label-foreign", f"by {event.source[:64]!r}, and only the controller accepts labels")
        target, after = data.get("target"), data.get("after")
        if not isinstance(target, Mapping) or not isinstance(after, Mapping) or target.get("type") != "finding":
            raise FormatError("label", "its target is no finding, or it has no cause")
        name, finding, cause = target.get("override"), target.get("id"), after.get("cause")
        if not isinstance(finding, str) or not isinstance(cause, str) or cause not in LABELS:
            raise FormatError("label", f"no finding's id, or no cause: {cause!r}"[:200])
        if not isinstance(name, str) or self._asked.get(name) != (finding, cause):
            raise FormatError("label-unasked", f"no operator's override {name!r} says so"[:200])
        del self._asked[name]
        kind = self._labels.take(finding, cause)
        if kind is not None:
            self._counters.add("labels", kind)

    def assessed(self, finding: Finding) -> Finding:
        """A statement that the ledger is to make, with what was learned of such findings."""
        facts = self._labels.note(finding)
        model = self._model(finding.kind)
        if model is None:
            return finding
        learned = model.assess(replace(facts, rules_cause=finding.cause), finding.confidence)
        return finding if learned is None else _with(finding, learned, model.labels)

    def _model(self, kind: str) -> KindModel | None:
        labelled = self._labels.labelled.get(kind)
        if not labelled:
            self._models.pop(kind, None)
            return None
        model = self._models.get(kind)
        if model is None or not model.follow(labelled):
            model = self._models[kind] = KindModel(labelled)
        return model

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return self._labels.snapshot() | {"asked": [[name, *asked] for name, asked in self._asked.items()]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._labels.restore(state)
        self._asked = {name: (finding, cause) for name, finding, cause in state["asked"]}
        self._models.clear()


def _with(finding: Finding, learned: LearnedCause, labels: int) -> Finding:
    """The statement with the learned cause where there is one, and evidence of what the labels say."""
    evidence = [*finding.evidence, Evidence("labels", float(labels), "findings", finding.kind)]
    if learned.false_alarm is not None:
        evidence.append(Evidence("false-alarm-probability", round(learned.false_alarm, 3), "1", finding.kind, 0.0))
    if not learned.labels:
        return replace(finding, evidence=tuple(evidence))
    p = round(learned.probability, 3)
    evidence.append(Evidence("cause-probability", p, "1", learned.cause))
    why = f"cause learned from {learned.labels} labels, the rules say {finding.cause}"
    return replace(
        finding,
        cause=learned.cause,
        confidence=min(finding.confidence, p),
        evidence=tuple(evidence),
        detail=f"{finding.detail}; {why}" if finding.detail else why,
    )
