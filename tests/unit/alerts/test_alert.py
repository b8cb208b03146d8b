"""The alert that a finding is: labels that stay, times that Alertmanager takes, text that is bounded."""

from __future__ import annotations

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.alerts.alert import MOST_ANNOTATION, MOST_LABEL, Alert, annotations_of, labels_of, rfc3339, url_of
from sdfstream.alerts.config import AlertsConfig
from sdfstream.errors import ConfigError
from sdfstream.records.finding import Evidence, Finding, Subject

NOW_NS = 1_800_000_000_000_000_000


def finding(**other: Any) -> dict[str, Any]:
    made = {
        "id": "f1", "kind": "loss", "severity": "warning", "status": "open", "subject": Subject("link", "l0->s1"),
        "since_at_ns": NOW_NS - 10**9, "seen_at_ns": NOW_NS, "cause": "gray-failure", "confidence": 0.9,
        "evidence": (Evidence("loss", 0.03, "share", "l0->s1", 0.0),), "remedy": "clean the optics", "jobs": ("j1",),
    }  # fmt: skip
    return Finding(**(made | other)).as_data()


def test_labels_are_what_never_changes_of_a_finding() -> None:
    first = finding()
    later = finding(
        status="update", seen_at_ns=NOW_NS + 10**10, cause="unknown", confidence=0.2, evidence=(), jobs=("j1", "j2"),
        detail="more is known", suspects=(("l0->s1", 0.5), ("s1->l2", 0.5)), since_at_ns=NOW_NS - 2 * 10**9,
    )  # fmt: skip
    assert labels_of(first) == labels_of(later)
    assert dict(labels_of(first)) == {
        "alertname": "SdfFinding", "id": "f1", "kind": "loss", "class": "link", "severity": "warning",
        "subject": "link l0->s1",
    }  # fmt: skip


def test_annotations_say_what_where_and_what_to_do() -> None:
    config = AlertsConfig("http://am:9093", page_url="https://m.example/", runbooks_url="https://docs.example/sdf/")
    said = annotations_of(finding(), config, "west")
    assert said["summary"] == "Warning | link l0->s1: loss (gray-failure)"
    assert "loss 0.03 share (normally 0.0) at l0->s1" in said["description"]
    assert said["runbook_url"] == "https://docs.example/sdf/runbooks.md#loss"
    assert (said["remedy"], said["jobs"], said["cluster"]) == ("clean the optics", "j1", "west")
    assert url_of(finding(id="a/b"), config) == "https://m.example/#/finding/a%2Fb"
    assert url_of(finding(), AlertsConfig()) == ""
    assert annotations_of(finding(), AlertsConfig(), "")["runbook_url"] == "docs/runbooks.md#loss"


def test_the_flaps_text_is_the_seeds_own() -> None:
    flap = finding(
        kind="link-flap", severity="urgent", detail="link has flapped more than 8 times within the past hour"
    )
    said = annotations_of(flap, AlertsConfig(), "")["summary"]
    assert said == "Urgent | Cluster: link has flapped more than 8 times within the past hour"


def test_text_from_outside_is_cut_and_shows_what_it_hides() -> None:
    odd = finding(remedy="x" * 9999, detail="a\x1b[2Jb\nforged: line", subject=Subject("nic", "h" * 999))
    said = annotations_of(odd, AlertsConfig(), "")
    assert len(said["remedy"]) == MOST_ANNOTATION
    assert "\\x1b[2Jb\\nforged" in said["description"]
    assert len(dict(labels_of(odd))["subject"]) == MOST_LABEL


@given(st.dictionaries(st.sampled_from(["id", "kind", "severity", "class", "subject", "evidence", "suspects", "jobs"]),
                       st.none() | st.text() | st.integers() | st.lists(st.text() | st.none() | st.dictionaries(
                           st.text(), st.text() | st.integers()))))  # fmt: skip
def test_whatever_a_finding_says_it_becomes_text(odd: dict[str, Any]) -> None:
    if isinstance(odd.get("jobs"), int) or isinstance(odd.get("evidence"), int) or isinstance(odd.get("suspects"), int):
        return  # the board's schema refuses it
    said = annotations_of(odd, AlertsConfig(), "c")
    assert all(isinstance(text, str) and text for text in said.values())
    assert all(isinstance(text, str) for _, text in labels_of(odd))


def test_an_alert_never_ends_before_it_starts() -> None:
    data = Alert((), {}, NOW_NS + 5, NOW_NS).as_data()
    assert data["startsAt"] == data["endsAt"]


@given(st.integers(-(2**63), 2**63 - 1))
def test_instants_are_rfc_3339(at_ns: int) -> None:
    text = rfc3339(at_ns)
    read = datetime.datetime.fromisoformat(text)
    assert read.utcoffset() == datetime.timedelta(0)
    if 0 <= at_ns < 2**62:
        assert int(read.timestamp()) == at_ns // 10**9
        assert int(text[-10:-1]) == at_ns % 10**9


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("alertmanager", "am:9093"), ("alertmanager", "ftp://am"), ("alertmanager", "http://am:99999"),
        ("alertmanager", "http://"), ("alertmanager", "http://am/?x=1"), ("page_url", "javascript:x"),
        ("runbooks_url", "http://a b"), ("look_s", 0.0), ("repeat_s", 0.5), ("expire_s", 179.0), ("timeout_s", 1e9),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_work_is_refused_by_its_name(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"alerts.{key}"):
        AlertsConfig(**{key: value}).check()
    AlertsConfig().check()
    AlertsConfig("https://u:p@am.example:9093/prefix").check()
    with pytest.raises(ConfigError, match="two ways"):
        AlertsConfig("http://u:p@am:9093", bearer_file="/x").check()
