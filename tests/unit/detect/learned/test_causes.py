"""Labels into statements: whose labels count, what changes of a finding and what never does."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from sdfstream.detect.learned.causes import LearnedCauses
from sdfstream.errors import FormatError
from sdfstream.numeric import codec
from sdfstream.records.finding import CAUSES, Evidence, Finding
from sdfstream.records.silences import FALSE_ALARM
from sdfstream.stats import Counters
from tests.fixtures.labels import asked, label, teach
from tests.unit.detect.learned.test_features import FINDING


def lossy(i: int, share: float, **other: Any) -> Finding:
    facts = (Evidence("loss-share", share, "1", "l0->s1", 0.0005), Evidence("probes", 900.0 + i, "1", "l0->s1"))
    return replace(FINDING, id=f"f{i}", evidence=facts, **{"detail": "loses probes", **other})


def taught(*causes: str, each: int = 10) -> LearnedCauses:
    """Losses of 2, 20, 40 … %, each with its own cause."""
    learned = LearnedCauses(Counters("detect"))
    for i in range(each * len(causes)):
        learned.assessed(lossy(i, 0.02 + 0.2 * (i % len(causes))))
        teach(learned, f"f{i}", causes[i % len(causes)])
    return learned


def facts_of(finding: Finding) -> dict[str, float]:
    return {fact.what: fact.value for fact in finding.evidence}


def test_without_labels_a_statement_is_what_the_rules_say() -> None:
    learned = LearnedCauses(Counters("detect"))
    assert learned.assessed(lossy(1, 0.2)) is not None
    assert learned.assessed(lossy(1, 0.2)) == lossy(1, 0.2)
    assert taught("gray-failure", "degraded-link", each=3).assessed(lossy(99, 0.22)) == lossy(99, 0.22)


def test_a_learned_cause_comes_with_its_evidence_and_changes_nothing_else() -> None:
    rules = lossy(99, 0.22, confidence=0.99)
    said = taught("gray-failure", "degraded-link").assessed(rules)
    assert said.cause == "degraded-link"
    assert facts_of(said)["labels"] == 20
    assert said.confidence == min(rules.confidence, facts_of(said)["cause-probability"])
    assert said.detail == "loses probes; cause learned from 10 labels, the rules say gray-failure"
    changed = {name for name, value in asdict(said).items() if value != asdict(rules)[name]}
    assert changed == {"cause", "confidence", "evidence", "detail"}
    assert said.evidence[: len(rules.evidence)] == rules.evidence


def test_a_false_alarm_is_shown_and_never_hidden() -> None:
    learned = taught("gray-failure", FALSE_ALARM)
    wrong, right = learned.assessed(lossy(98, 0.22)), learned.assessed(lossy(99, 0.02))
    assert wrong.cause == right.cause == "gray-failure"
    assert facts_of(wrong)["false-alarm-probability"] > 0.7 > 0.3 > facts_of(right)["false-alarm-probability"]
    assert (wrong.severity, wrong.confidence) == (FINDING.severity, FINDING.confidence)


def test_kinds_learn_apart() -> None:
    other = replace(lossy(99, 0.22), kind="congestion")
    assert taught("gray-failure", "degraded-link").assessed(other) == other


HOSTILE = [
    label("f1", "cabling", source="h03", host="h03"),
    label("f1", "cabling", source="h03"),
    label("f1", "cabling", host="h03"),
    label("f1", "no-such-cause"),
    label("f1", "cabling", after={"cause": ["cabling"]}),
    label("f1", "cabling", after=None),
    label("f1", "cabling", target={"type": "finding", "id": 7}),
    label("f1", "cabling", target={"type": "nic", "id": "f1"}),
    label("f1", "cabling", target="f1"),
    label("f1", "cabling"),
    label("f1", "cabling", target={"type": "finding", "id": "f1", "override": "o-f2-cabling"}),
    label("f1", "cabling", target={"type": "finding", "id": "f1", "override": ["o-f2-cabling"]}),
    label("f2", "clock", target={"type": "finding", "id": "f2", "override": "o-f2-cabling"}),
    label("x" * 100_000, "cabling"),
]


@pytest.mark.parametrize("event", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_label_of_the_controller_teaches_nothing(event: Any) -> None:
    learned = taught("gray-failure", "degraded-link")
    learned.take_override(asked("f2", "cabling"))
    before = codec.dump(learned.snapshot())
    with pytest.raises(FormatError) as refused:
        learned.take(event)
    assert len(str(refused.value)) < 500
    assert codec.dump(learned.snapshot()) == before


def test_a_label_counts_once_and_only_for_a_finding_that_is_known() -> None:
    learned = taught("gray-failure", "degraded-link")
    teach(learned, "f1", "cabling")
    with pytest.raises(FormatError, match="label-unasked"):
        learned.take(label("f1", "cabling"))
    with pytest.raises(FormatError, match="label-finding"):
        teach(learned, "nobody", "cabling")


HOSTILE_OVERRIDES: list[dict[str, Any]] = [
    {"what": "hold"},
    {"what": ["label"]},
    {"target": None},
    {"target": {"id": 7}},
    {"set": None},
    {"set": {"cause": {"x": 1}}},
    {"id": None},
    {"id": "x" * 100_000},
]


@pytest.mark.parametrize("other", HOSTILE_OVERRIDES, ids=range(len(HOSTILE_OVERRIDES)))
def test_what_is_no_override_of_a_label_is_left_to_the_controller(other: dict[str, Any]) -> None:
    learned, event = taught("gray-failure"), asked("f1", "cabling")
    before = codec.dump(learned.snapshot())
    learned.take_override(replace(event, data={**event.data, **other}))
    assert codec.dump(learned.snapshot()) == before


def test_a_flood_of_overrides_is_bounded() -> None:
    learned = taught("gray-failure")
    for i in range(3000):
        learned.take_override(asked(f"f{i}", "cabling"))
    assert len(learned.snapshot()["asked"]) == 1000


@pytest.mark.parametrize("other", [{"action": "steer"}, {"state": "refused"}, {"action": ["label"]}, {"action": None}])
def test_other_outcomes_pass(other: dict[str, Any]) -> None:
    learned = taught("gray-failure", "degraded-link")
    before = codec.dump(learned.snapshot())
    learned.take(label("f1", "cabling", **other))
    assert codec.dump(learned.snapshot()) == before


def test_a_flood_of_labels_costs_a_bounded_store_and_one_lesson() -> None:
    learned = taught("gray-failure", "degraded-link")
    for i in range(5000):
        teach(learned, f"f{i % 20}", sorted(CAUSES)[i % len(CAUSES)])
    assert len(codec.dump(learned.snapshot())) < 50_000
    assert learned.assessed(lossy(99, 0.22)).subject == FINDING.subject


def test_a_snapshot_in_between_is_invisible() -> None:
    learned, again = taught("gray-failure", "degraded-link", "cabling"), LearnedCauses(Counters("detect"))
    learned.assessed(lossy(50, 0.4))
    saved = codec.dump(learned.snapshot())
    again.restore(codec.load(saved))
    assert codec.dump(again.snapshot()) == saved
    for one in (learned, again):
        teach(one, "f50", "cabling")
    for i in range(60, 70):
        assert learned.assessed(lossy(i, 0.05 * (i - 59))) == again.assessed(lossy(i, 0.05 * (i - 59)))
