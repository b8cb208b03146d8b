"""Findings of one seed, each with what it truly was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sdfstream.records.finding import Evidence, Finding, Subject
from sdfstream.score.detect.facts import SETTLED_NS
from sdfstream.score.detect.labels.fabric import cause_of, scenario
from sdfstream.score.detect.run import statements
from sdfstream.score.match import match
from sdfstream.settings import Settings
from sdfstream.twin.simulation import Twin


@dataclass(frozen=True, slots=True)
class Sighting:
    """A finding above info."""

    fault: str
    """Kind of the fault that it is tied to; empty: no fault explains it."""
    cause: str
    """What operators would label it."""
    statements: tuple[Finding, ...]
    """In order."""

    @property
    def settled(self) -> Finding:
        """As it stands `SETTLED_NS` after it opened, as the scorecard of findings reads causes."""
        until_ns = self.statements[0].seen_at_ns + SETTLED_NS
        live = [s for s in self.statements if s.seen_at_ns <= until_ns and s.status != "resolved"]
        return live[-1] if live else self.statements[0]


def sightings(seed: int, settings: Settings, *, counters: bool) -> list[Sighting]:
    """All findings of a seed, in the order in which they opened."""
    twin = Twin(scenario(seed, counters=counters), seed, "labels")
    said = statements(twin, settings)
    truth = [fault.truth(twin.start_ns, twin.seconds, twin.fabric.names) for fault in twin.faults]
    card = match([fault for fault in truth if not fault["benign"]], said)
    explained = {name: outcome.fault for outcome in card.outcomes for name in outcome.tied}
    histories: dict[str, list[Mapping[str, Any]]] = {}
    for statement in said:
        histories.setdefault(str(statement["id"]), []).append(statement)
    return [
        _sighting(explained.get(name), history)
        for name, history in histories.items()
        if history[0]["severity"] != "info"
    ]


def _sighting(fault: Mapping[str, Any] | None, history: Sequence[Mapping[str, Any]]) -> Sighting:
    return Sighting("" if fault is None else str(fault["kind"]), cause_of(fault), tuple(map(_finding, history)))


def _finding(data: Mapping[str, Any]) -> Finding:
    """A statement as detect had it, as far as causes are learned from it."""
    subject = data["subject"]
    return Finding(
        id=data["id"],
        kind=data["kind"],
        severity=data["severity"],
        status=data["status"],
        subject=Subject(subject["type"], subject["id"]),
        since_at_ns=data["since_at_ns"],
        seen_at_ns=data["seen_at_ns"],
        cause=data["cause"],
        confidence=data["confidence"],
        evidence=tuple(Evidence(**fact) for fact in data["evidence"]),
        remedy=data["remedy"],
        suspects=tuple((suspect["id"], suspect["probability"]) for suspect in data["suspects"]),
        direction=subject.get("direction", ""),
        symptoms=tuple(data["symptoms"]),
        jobs=tuple(data["jobs"]),
    )
