"""What is due when: at once, again, resolved; whatever fails, and however many there are."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from sdfstream.alerts import ledger as module
from sdfstream.alerts.alert import Alert
from sdfstream.alerts.config import AlertsConfig
from sdfstream.alerts.ledger import AlertLedger

S = 10**9
CONFIG = AlertsConfig("http://am:9093")
REPEAT_NS, EXPIRE_NS = int(CONFIG.repeat_s * S), int(CONFIG.expire_s * S)


def finding(key: str, severity: str = "warning", since_ns: int = 0) -> dict[str, Any]:
    subject = {"type": "nic", "id": "h0/r0"}
    what = {"id": key, "kind": "nic-down", "class": "link", "severity": severity}
    return what | {"subject": subject, "since_at_ns": since_ns}


def never(_: str) -> int | None:
    return None


def push(ledger: AlertLedger, now_ns: int) -> list[Alert]:
    due = ledger.due(now_ns)
    ledger.delivered(due, now_ns)
    return due


def ids(alerts: list[Alert]) -> list[str]:
    return [dict(a.labels)["id"] for a in alerts]


def test_an_alert_is_pushed_at_once_again_before_it_would_end_and_once_more_when_resolved() -> None:
    ledger, at_ns = AlertLedger(CONFIG), 1000 * S
    ledger.look([finding("f1", since_ns=990 * S)], never, at_ns)
    (first,) = push(ledger, at_ns)
    assert (first.starts_at_ns, first.ends_at_ns) == (990 * S, at_ns + EXPIRE_NS)
    ledger.look([finding("f1")], never, at_ns + REPEAT_NS - 1)
    assert ledger.due(at_ns + REPEAT_NS - 1) == []
    (again,) = push(ledger, at_ns + REPEAT_NS)
    assert again.labels == first.labels
    assert again.ends_at_ns - again.starts_at_ns > 3 * REPEAT_NS, "two pushes may be lost"
    ledger.look([], {"f1": 1065 * S}.get, 1070 * S)
    (over,) = push(ledger, 1070 * S)
    assert (over.labels, over.ends_at_ns) == (first.labels, 1065 * S)
    assert ledger.due(10**6 * S) == []
    assert ledger.counters.as_dict() == {"alerts.opened": 1, "alerts.repeated": 1, "alerts.resolved": 1}


def test_what_was_not_delivered_is_due_until_it_ended_by_itself() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1")], never, 0)
    assert ids(ledger.due(0)) == ids(ledger.due(5 * S)) == ["f1"]
    push(ledger, 10 * S)
    ledger.look([], never, 20 * S)
    for at_ns in (20 * S, 100 * S, 10 * S + EXPIRE_NS - 1):
        ledger.look([], never, at_ns)
        assert [a.ends_at_ns for a in ledger.due(at_ns)] == [20 * S]
    ledger.look([], never, 10 * S + EXPIRE_NS)
    assert ledger.due(10 * S + EXPIRE_NS) == []
    assert ledger.counters.get("expired") == 1


def test_a_finding_that_was_over_before_it_was_pushed_is_counted_and_not_told() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1")], never, 0)
    ledger.look([], never, S)
    assert ledger.due(S) == []
    assert ledger.counters.get("missed") == 1


def silenced(key: str) -> dict[str, Any]:
    return finding(key) | {
        "silence": {"id": "o1", "by": "ann", "until_ns": 10**6 * S, "reason": "", "maintenance": False}
    }


def test_a_silenced_finding_is_resolved_and_told_again_when_the_silence_is_over() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1")], never, S)
    push(ledger, S)
    ledger.look([silenced("f1")], never, 2 * S)
    (over,) = push(ledger, 2 * S)
    assert over.ends_at_ns == 2 * S
    for at_s in (3, 100, 1000):
        ledger.look([silenced("f1")], never, at_s * S)
        assert ledger.due(at_s * S) == []
    ledger.look([finding("f1")], never, 1001 * S)
    (again,) = push(ledger, 1001 * S)
    assert (again.labels, again.ends_at_ns) == (over.labels, 1001 * S + EXPIRE_NS)
    assert ledger.counters.as_dict() == {"alerts.opened": 2, "alerts.resolved": 1, "alerts.silenced": 1}


def test_what_is_silenced_before_it_could_be_pushed_is_not_missed_but_silenced() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1")], never, 0)
    ledger.look([silenced("f1"), silenced("f2")], never, S)
    assert ledger.due(S) == []
    assert ledger.counters.as_dict() == {"alerts.silenced": 2}


def test_another_severity_is_another_alert_and_the_former_one_ends() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1", "warning")], never, 0)
    push(ledger, 0)
    ledger.look([finding("f1", "urgent")], never, 5 * S)
    due = push(ledger, 5 * S)
    assert [(dict(a.labels)["severity"], a.ends_at_ns) for a in due] == [
        ("warning", 5 * S),
        ("urgent", 5 * S + EXPIRE_NS),
    ]
    ledger.look([], never, 6 * S)
    assert [dict(a.labels)["severity"] for a in push(ledger, 6 * S)] == ["urgent"]


def test_one_that_comes_back_is_not_resolved_afterwards() -> None:
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("f1")], never, 0)
    push(ledger, 0)
    ledger.look([], never, S)  # the push fails
    ledger.look([finding("f1")], never, 2 * S)
    assert [a.ends_at_ns for a in push(ledger, 2 * S)] == [2 * S + EXPIRE_NS]


def test_the_most_urgent_come_first_and_what_has_a_slot_retains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FIRING", 2)
    ledger = AlertLedger(CONFIG)
    ledger.look([finding("i", "info"), finding("w", "warning"), finding("u", "urgent")], never, 0)
    assert ids(push(ledger, 0)) == ["u", "w"]
    many = [finding("i", "info"), finding("w", "warning"), finding("u", "urgent"), finding("u2", "urgent")]
    for at_s in (1, 2, 3):
        ledger.look(many, never, at_s * S)
        assert push(ledger, at_s * S) == [], "none is resolved for want of a slot"
    assert ledger.counters.get("shed", "open") == 2, "once each"
    ledger.look([f for f in many if f["id"] != "w"], never, 4 * S)
    assert ids(push(ledger, 4 * S)) == ["w", "u2"]


class Lossy(RuleBasedStateMachine):
    """Findings that come and go, pushes that fail: what Alertmanager shows after a good push is what is open."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = AlertLedger(CONFIG)
        self.now_ns = 0
        self.open: dict[str, dict[str, Any]] = {}
        self.remote: dict[tuple[Any, ...], int] = {}
        """What Alertmanager has: labels → endsAt."""

    @rule(key=st.sampled_from("abcd"), severity=st.sampled_from(["urgent", "warning"]))
    def opens(self, key: str, severity: str) -> None:
        self.open[key] = finding(key, severity, self.now_ns)

    @rule(key=st.sampled_from("abcd"))
    def resolves(self, key: str) -> None:
        self.open.pop(key, None)

    @rule(seconds=st.sampled_from([0.1, 1, 20, 59, 61, 299, 301, 4000]))
    def passes(self, seconds: float) -> None:
        self.now_ns += int(seconds * S)

    @rule(arrives=st.booleans(), answered=st.booleans())
    def looks(self, arrives: bool, answered: bool) -> None:
        self.ledger.look(list(self.open.values()), never, self.now_ns)
        due = self.ledger.due(self.now_ns)
        if arrives:
            self.remote |= {alert.labels: alert.ends_at_ns for alert in due}
        if arrives and answered:
            self.ledger.delivered(due, self.now_ns)
            shown = {labels for labels, ends_at_ns in self.remote.items() if ends_at_ns > self.now_ns}
            wanted = {(f["id"], f["severity"]) for f in self.open.values()}
            told = {(dict(labels)["id"], dict(labels)["severity"]) for labels in shown}
            assert wanted <= told
            # one that arrived without an answer, and was over at the next look, ends by itself
            assert all(self.remote[labels] <= self.now_ns + EXPIRE_NS for labels in shown)

    @invariant()
    def it_forgets(self) -> None:
        assert len(self.ledger._firing) <= 4
        assert len(self.ledger._ended) <= 8


TestLossy = Lossy.TestCase
