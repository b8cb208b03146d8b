"""What operators said of findings: the newest findings' features, and the labelled ones, both bounded.

A label names a finding by its id, often long after it was resolved, so the features of the newest findings are
remembered here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.detect.learned.features import Features, features
from sdfstream.detect.learned.packed import packed, unpacked
from sdfstream.errors import FormatError
from sdfstream.records.finding import Finding
from sdfstream.records.units import NS_PER_S

SETTLED_NS: Final = 3 * NS_PER_S
"""Rules have read counters, marks and losses by then, and operators read a finding about so old."""
MOST_FINDINGS: Final = 1000
"""Findings that a label may still be for: days of a fabric that has hundreds a day. 280 kB of a snapshot."""
MOST_LABELS: Final = 200
"""Labelled findings of a kind. Newer ones replace the oldest, so what a fabric no longer does is forgotten; and to
learn them all anew, after a restart or a correction, takes a few tens of ms."""
_AT_ONCE: Final = MOST_LABELS // 4
"""So many of the oldest go together: whenever one goes, the rest is learned anew."""


@dataclass(frozen=True, slots=True)
class FindingFacts:
    """A finding as a classifier may know it."""

    kind: str
    rules_cause: str
    opened_ns: int
    """Bus time of its first statement."""
    features: Features


@dataclass(frozen=True, slots=True)
class Labelled:
    """A finding of which an operator said the cause."""

    finding: str
    facts: FindingFacts
    cause: str


class Labels:
    """The newest findings and the labelled ones, by kind, in the order in which they were labelled."""

    def __init__(self) -> None:
        self._findings: dict[str, FindingFacts] = {}
        self.labelled: dict[str, list[Labelled]] = {}
        """Of each kind, oldest first; a finding stands in it once."""

    def note(self, finding: Finding) -> FindingFacts:
        """Remember a finding as it stood `SETTLED_NS` after it opened; what is remembered of it.

        The evidence of a queue or a loss changes while it lasts, and at its end; findings are comparable at one age.
        """
        known = self._findings.pop(finding.id, None)
        settling = known is not None and finding.seen_at_ns - known.opened_ns <= SETTLED_NS
        if known is None or (settling and finding.status != "resolved"):
            opened_ns = finding.seen_at_ns if known is None else known.opened_ns
            known = FindingFacts(finding.kind, finding.cause, opened_ns, features(finding))
        self._findings[finding.id] = known
        while len(self._findings) > MOST_FINDINGS:
            del self._findings[next(iter(self._findings))]
        return known

    def take(self, finding: str, cause: str) -> str | None:
        """Take a label; the kind of the finding. None: the same was said of it before.

        A later label of a finding replaces the former; ``unknown`` takes it back.

        Raises
        ------
        FormatError
            ``label-finding``: nothing is known of such a finding.
        """
        former = next((x for of in self.labelled.values() for x in of if x.finding == finding), None)
        facts = self._findings.get(finding) or (former and former.facts)
        if not facts:
            raise FormatError("label-finding", f"no finding {finding[:64]!r} is known any more")
        if former is not None and (former.cause, former.facts) == (cause, facts):
            return None
        of = [x for x in self.labelled.get(facts.kind, ()) if x.finding != finding]
        if cause != "unknown":
            of = [*(of[_AT_ONCE:] if len(of) >= MOST_LABELS else of), Labelled(finding, facts, cause)]
        self.labelled[facts.kind] = of
        return facts.kind

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        found, labelled = self._findings, [x for of in self.labelled.values() for x in of]
        return {
            "findings": [[name, *_row(facts)] for name, facts in found.items()],
            "findings_features": packed(facts.features for facts in found.values()),
            "labelled": [[x.finding, x.cause, *_row(x.facts)] for x in labelled],
            "labelled_features": packed(x.facts.features for x in labelled),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        found = zip(state["findings"], unpacked(state["findings_features"]), strict=True)
        self._findings = {row[0]: _facts(row[1:], of) for row, of in found}
        self.labelled = {}
        for row, of in zip(state["labelled"], unpacked(state["labelled_features"]), strict=True):
            facts = _facts(row[2:], of)
            self.labelled.setdefault(facts.kind, []).append(Labelled(row[0], facts, row[1]))


def _row(facts: FindingFacts) -> list[Any]:
    return [facts.kind, facts.rules_cause, facts.opened_ns]


def _facts(row: list[Any], found: Features) -> FindingFacts:
    kind, rules_cause, opened_ns = row
    return FindingFacts(kind, rules_cause, opened_ns, found)
