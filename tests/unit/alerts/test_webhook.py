"""Alertmanager's webhook: what it says is read, anything else is a refusal with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.alerts import received, webhook
from sdfstream.alerts.received import ReceivedAlerts
from sdfstream.errors import FormatError

ALERT: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "InfinibandLinkDown", "instance": "h03:9100", "severity": "warning"},
    "annotations": {"summary": "port 1 of mlx5_0 is down"},
    "startsAt": "2027-01-15T08:00:00.123456789Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph",
    "fingerprint": "c9cba2a2ad58ad52",
}
BODY: dict[str, Any] = {
    "version": "4", "groupKey": '{}:{alertname="x"}', "truncatedAlerts": 0, "status": "firing", "receiver": "sdfstream",
    "groupLabels": {}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://am:9093", "alerts": [ALERT],
}  # fmt: skip


def raw(alert: dict[str, Any] | None = None, **other: Any) -> bytes:
    return json.dumps(BODY | ({"alerts": [ALERT | alert]} if alert else {}) | other).encode()


def test_what_goes_on_and_what_is_resolved() -> None:
    (on,) = webhook.read(raw())
    assert (on.fingerprint, on.receiver, on.status) == ("c9cba2a2ad58ad52", "sdfstream", "firing")
    assert (on.starts_at_ns, on.ends_at_ns) == (1_800_000_000_123_456_789, None)
    assert on.labels["instance"] == "h03:9100"
    (over,) = webhook.read(raw({"status": "resolved", "endsAt": "2027-01-15T10:00:01+02:00"}))
    assert over.ends_at_ns == 1_800_000_001_000_000_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "json"), (b"[]", "version"), (raw(version="3"), "version"), (raw(receiver=7), "receiver"),
        (raw(alerts={}), "alerts"), (raw(alerts=[ALERT] * 501), "alerts"), (raw(alerts=[3]), "alert"),
        (raw({"fingerprint": "../x"}), "fingerprint"), (raw({"status": "odd"}), "status"),
        (raw({"labels": {"a": 1}}), "labels"), (raw({"labels": {"a": "x" * 2001}}), "labels"),
        (raw({"annotations": {str(i): "" for i in range(65)}}), "annotations"), (raw({"startsAt": "now"}), "instant"),
        (raw({"startsAt": "2027-13-01T00:00:00Z"}), "instant"), (raw({"startsAt": None}), "instant"),
        (raw(alerts=[ALERT | {"annotations": {"a": "x" * 2000}}] * 500) + b" " * (1 << 20), "json"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_reason(body: bytes, reason: str) -> None:
    with pytest.raises(FormatError) as error:
        webhook.read(body)
    assert error.value.reason == reason


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)
       | st.dictionaries(st.sampled_from([*BODY, *ALERT]) | st.text(), inner)), st.sampled_from(list(BODY)),
       st.sampled_from(list(ALERT)))  # fmt: skip
def test_whatever_stands_in_a_field_is_read_or_refused(odd: Any, of_body: str, of_alert: str) -> None:
    for body in (odd, BODY | {of_body: odd}, BODY | {"alerts": [ALERT | {of_alert: odd}]}):
        try:
            found = webhook.read(json.dumps(body).encode("utf-8", "surrogatepass"))
        except FormatError:
            continue
        assert len(found) <= webhook.MOST_ALERTS
        assert all(0 <= alert.starts_at_ns < 2**63 for alert in found)


def test_the_newest_of_each_is_known_and_no_more_than_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(received, "MOST_RECEIVED", 2)
    known = ReceivedAlerts()
    known.take(webhook.read(raw()), 1)
    known.take(webhook.read(raw({"fingerprint": "aa", "labels": {"alertname": "SdfFinding", "id": "f1"}})), 2)
    known.take(webhook.read(raw({"status": "resolved", "endsAt": "2027-01-15T09:00:00Z"})), 3)
    assert [(i["finding"], i["status"], i["received_at_ns"]) for i in known.items()] == [
        ("f1", "firing", 2), (None, "resolved", 3),
    ]  # fmt: skip
    known.take(webhook.read(raw({"fingerprint": "bb"})), 4)
    assert [i["fingerprint"] for i in known.items()] == ["c9cba2a2ad58ad52", "bb"]
    assert known.counters.get("shed") == 1
