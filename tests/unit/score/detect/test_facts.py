"""What is made of a fault, from statements alone."""

from __future__ import annotations

from typing import Any

from sdfstream.score.detect.card import card
from sdfstream.score.detect.confusion import Stated
from sdfstream.score.detect.facts import RunFacts, facts, is_empty

S = 1_000_000_000
TRUTH = {
    "scenario": "link", "seed": 4, "seconds": 864.0,
    "addresses": {"172.16.0.0": "l1->s0", "172.16.0.1": "s0->l1"},
}  # fmt: skip
FAULT = {
    "id": "f0", "kind": "link-down", "target": "l1--s0", "direction": "fwd", "at_ns": 10 * S, "healed_at_ns": 30 * S,
    "benign": False, "links": ["l1->s0"], "parameters": {},
}  # fmt: skip


def statement(at_s: float, status: str = "open", subject: str = "l1--s0", **more: Any) -> dict[str, Any]:
    data = {
        "id": "a", "kind": "link-down", "severity": "urgent", "status": status, "seen_at_ns": int(at_s * S),
        "subject": {"type": "link", "id": subject, "direction": "l1->s0"}, "cause": "link-failure",
        "suspects": [{"id": "l1->s0", "probability": 0.9}, {"id": "s0->l1", "probability": 0.1}],
        "evidence": [{"what": "silent-paths", "value": 7.0, "baseline": 0.0}],
    }  # fmt: skip
    return {**data, **more}


def made(*statements: dict[str, Any], faults: tuple[dict[str, Any], ...] = (FAULT,)) -> RunFacts:
    return facts(TRUTH, faults, statements, blind=False)


def test_a_fault_that_is_named_in_time_with_its_direction_and_cause() -> None:
    run = made(statement(11.2), statement(33, "resolved"))
    (fact,) = run.faults
    assert (fact.found, fact.exact, fact.directed, fact.cause, fact.delay_s) == (True, True, True, True, 1.2)
    assert (fact.findings, fact.closed_early, run.false_alarms) == (1, 0, [])


def test_a_link_by_the_addresses_of_its_ends_is_that_link() -> None:
    for direction, right in (("->172.16.0.1", False), ("->172.16.0.0", True), ("172.16.0.1->172.16.0.0", True)):
        subject = {"type": "link", "id": "172.16.0.0--172.16.0.1", "direction": direction}
        (fact,) = made({**statement(11), "subject": subject, "suspects": []}).faults
        assert fact.exact
        assert fact.directed is right, direction


def test_a_direction_is_right_where_one_is_at_fault_and_wrong_where_both_are() -> None:
    undirected = {**statement(11), "subject": {"type": "link", "id": "l1--s0"}}
    both = {**FAULT, "direction": "both", "links": ["l1->s0", "s0->l1"]}
    assert made(undirected).faults[0].directed is False
    assert made(undirected, faults=(both,)).faults[0].directed is True
    assert made(statement(11), faults=(both,)).faults[0].directed is False


def test_a_finding_resolved_while_the_fault_lasts_is_closed_early() -> None:
    assert made(statement(11), statement(20, "resolved")).faults[0].closed_early == 1
    assert made(statement(11), statement(20, "resolved"), statement(21, "open")).faults[0].closed_early == 0
    assert made(statement(11), statement(20, "resolved", detail="symptom of nic-down x")).faults[0].closed_early == 0
    assert made(statement(11), statement(28.5, "resolved")).faults[0].closed_early == 0


def test_what_no_fault_explains_is_false_also_at_a_benign_event() -> None:
    run = made(statement(11), faults=({**FAULT, "benign": True},))
    assert run.faults == []
    assert run.false_alarms == ["link-down link l1--s0"]


def test_evidence_that_shows_nothing_is_counted_once_a_finding() -> None:
    nothing = [{"what": "loss-events", "value": 0.0, "baseline": None}]
    run = made(statement(11, evidence=nothing), statement(12, "update", evidence=nothing))
    assert run.empty_evidence == ["link-down link l1--s0"]
    assert not is_empty(statement(11))
    assert not is_empty(statement(11, "resolved", evidence=[]))


def test_the_card_counts_and_leaves_null_what_was_not_measured() -> None:
    missed = {
        **FAULT,
        "id": "f1",
        "kind": "gray-loss",
        "target": "l9--s9",
        "links": [],
        "at_ns": 100 * S,
        "healed_at_ns": None,
    }
    other = statement(50, subject="l3--s3", id="b")
    result = card([made(statement(11.2), statement(33, "resolved"), other, faults=(FAULT, missed))])
    assert result["precision"] == 0.5
    assert result["recall"] == 0.5
    assert result["place_at_1"] == result["cause_accuracy"] == result["direction_at_1"] == 1
    assert result["hard_delay_p99_s"] == 1.2
    assert result["gray_delay_p99_s"] is None
    assert result["false_alarms_per_day"] == 100
    assert result["queue_rmse_bytes"] is None
    assert result["utilisation_rmse"] is None
    assert result["grouping_ari"] is None
    assert result["per_fault"]["gray-loss"]["place_at_1"] is None
    assert result["missed"] == ["link 4: gray-loss l9--s9"]


def test_what_a_finding_stated_is_true_where_its_subject_was_at_fault_and_its_cause_right() -> None:
    sure = statement(11, confidence=0.9)
    assert made(sure).stated == [Stated(0.9, True)]
    assert made(statement(11, confidence=0.9, cause="queueing")).stated == [Stated(0.9, False)]
    elsewhere = {**sure, "id": "b", "subject": {"type": "link", "id": "l7--s3"}, "suspects": []}
    assert made(sure, elsewhere).stated == [Stated(0.9, True), Stated(0.9, False)]
    assert made({**sure, "severity": "info"}, {**elsewhere, "class": "telemetry"}).stated == []
    corrected = statement(13, "update", confidence=0.99, cause="link-failure")
    assert made(statement(11, confidence=0.5, cause="unknown"), corrected).stated == [Stated(0.99, True)]


def test_the_class_told_is_that_of_the_best_finding_once_it_has_settled() -> None:
    assert made(statement(11)).faults[0].reported_class == "hardware"
    assert made(statement(11, cause="queueing", kind="congestion")).faults[0].reported_class == "congestion"
    assert made().faults[0].reported_class == "missed"
    said = card([made(statement(11)), made()])
    assert said["confusion"] == {"hardware": {"hardware": 1, "missed": 1}}
