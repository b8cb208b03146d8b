"""Features of a finding: what a classifier may know of it, as a bounded set of finite numbers.

Names of elements are left out on purpose: a cause is to be learned from what was measured, and must hold for the next
NIC or link too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeAlias

from sdfstream.records.finding import Evidence, Finding

Features: TypeAlias = Mapping[str, float]
"""Feature to value, in the order in which the finding has them."""

MOST_FACTS: Final = 16
"""Kinds of evidence of one finding that count; detectors have at most nine, ports as many as counters that rise."""
MOST_FEATURES: Final = 6 + 2 + 3 * MOST_FACTS
_LONGEST_NAME: Final = 48
_SMALLEST: Final = 1e-3
"""Values below hardly differ: a tenth of a per cent of packets, a nanosecond of a delay in µs."""


def features(finding: Finding) -> dict[str, float]:
    """Subject, direction, what the rules say, and of every kind of evidence that it is there, value and ratio.

    Values and ratios to a baseline other than 0 are in decades (`scaled`), so that a step of ten weighs as much as
    another subject. Evidence that is named more than once (a class each) counts by its greatest value and its number.

    >>> from sdfstream.records.finding import Subject
    >>> loss = Evidence("loss-share", 0.02, "1", "l0->s1", 0.0005)
    >>> subject = Subject("link", "l0--s1")
    >>> found = features(Finding("f", "loss", "warning", "open", subject, 0, 0, "gray-failure", 0.9, (loss,), ""))
    >>> round(found["loss-share"], 2), round(found["loss-share over baseline"], 2), found["subject is link"]
    (1.6, 1.15, 1.0)
    """
    made = {
        f"subject is {finding.subject.type}": 1.0,
        f"rules say {finding.cause}": 1.0,
        "directed": float(bool(finding.direction)),
        "confidence": _finite(finding.confidence),
        "suspects": math.log10(1 + len(finding.suspects)),
        "symptoms": math.log10(1 + len(finding.symptoms)),
        "jobs": math.log10(1 + len(finding.jobs)),
    }
    facts: dict[str, list[Evidence]] = {}
    for fact in finding.evidence:
        name = fact.what[:_LONGEST_NAME]
        if name in facts or len(facts) < MOST_FACTS:
            facts.setdefault(name, []).append(fact)
    for name, several in facts.items():
        made[f"{name} times"] = math.log10(1 + len(several))
        greatest = max(several, key=lambda fact: _finite(fact.value))
        made[name] = scaled(greatest.value)
        if greatest.baseline:
            over = (abs(_finite(greatest.value)) + _SMALLEST) / (abs(_finite(greatest.baseline)) + _SMALLEST)
            made[f"{name} over baseline"] = math.log10(over)
    return made


def scaled(value: float) -> float:
    """Signed logarithm: decades above a thousandth, 0 at 0; what is not finite counts as 0.

    >>> [round(scaled(v), 2) for v in (0.0, 0.02, 1.0, 300.0, -300.0, float("nan"))]
    [0.0, 1.6, 3.3, 5.78, -5.78, 0.0]
    """
    return math.asinh(_finite(value) / _SMALLEST) / math.log(10)


def _finite(value: float) -> float:
    return max(-1e15, min(1e15, float(value))) if math.isfinite(value) else 0.0
