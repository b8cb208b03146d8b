"""Causes with and without labels: what is compared, and that truth teaches only by labels of other seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdfstream.detect.learned.labels import SETTLED_NS
from sdfstream.records.finding import Evidence
from sdfstream.records.silences import FALSE_ALARM
from sdfstream.score.detect.labels import text
from sdfstream.score.detect.labels.fabric import cause_of, scenario
from sdfstream.score.detect.labels.learning import card
from sdfstream.score.detect.labels.sightings import Sighting
from sdfstream.twin.fault_kinds import KINDS
from tests.unit.detect.learned.test_features import FINDING


def sighting(i: int, share: float, cause: str, fault: str = "gray-loss") -> Sighting:
    fact = Evidence("loss-share", share, "1", "l0->s1", 0.0005)
    opened = replace(FINDING, id=f"f{i}", evidence=(fact,), seen_at_ns=10)
    later = replace(opened, status="update", seen_at_ns=11 + SETTLED_NS, cause="unknown")
    return Sighting(fault, cause, (opened, later))


def seed(first: int) -> list[Sighting]:
    """Losses of 2 % that the rules know, of 20 % that they do not, and of 0.3 % that are none."""
    losses = [(0.02, "gray-failure", "gray-loss"), (0.2, "degraded-link", "gray-loss"), (0.003, FALSE_ALARM, "")]
    return [sighting(first + i, share, cause, fault) for i, (share, cause, fault) in enumerate(losses * 2)]


def test_labels_of_other_seeds_teach_what_rules_cannot_know() -> None:
    found = card({1: seed(0), 2: seed(0), 3: seed(20)}, {4: seed(0), 5: seed(50)})
    assert (found["labels"], found["findings"], found["seeds"]) == (18, 12, [4, 5])
    assert found["accuracy"]["gray-loss"]["without"] == {"mean": 0.5, "median": 0.5, "worst": 0.5}
    assert found["accuracy"]["all faults"]["with"] == {"mean": 1.0, "median": 1.0, "worst": 1.0}
    assert found["changed"] | {"mean_probability": 0} == {
        "n": 4, "right": 4, "rules_right": 0, "of_false_alarms": 0, "mean_probability": 0,
    }  # fmt: skip
    assert found["false_alarms"]["mean_probability"] > 0.7 > 0.3 > found["false_alarms"]["mean_probability_of_others"]
    page = text.table({"without_counters": found, "with_counters": found})
    assert "| gray-loss | 8 | 0.50, 0.50, 0.50 | 1.00, 1.00, 1.00 |" in page


def test_few_labels_change_nothing() -> None:
    found = card({1: seed(0)}, {4: seed(0)})
    assert found["changed"]["n"] == 0
    assert found["accuracy"]["all faults"]["with"] == found["accuracy"]["all faults"]["without"]
    assert found["false_alarms"]["mean_probability"] is None
    assert "–" in text.table({"without_counters": found, "with_counters": found})


def test_a_cause_is_read_as_the_finding_settled() -> None:
    assert sighting(1, 0.2, "degraded-link").settled.cause == "gray-failure"


@pytest.mark.parametrize("number", [1, 2])
def test_every_fault_of_the_fabric_has_a_name_and_seeds_differ(number: int) -> None:
    one, other = scenario(number, counters=False), scenario(number, counters=True)
    assert one.faults == other.faults != scenario(number + 2, counters=False).faults
    assert (one.known.counters, other.known.counters) == (False, True)
    for fault in one.faults:
        if not KINDS[fault.kind].benign:
            assert cause_of({"kind": fault.kind, "parameters": {"share": fault.share}}) != FALSE_ALARM
    assert cause_of(None) == FALSE_ALARM
