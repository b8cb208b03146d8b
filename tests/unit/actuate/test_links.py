"""Findings that may move something."""

from __future__ import annotations

from sdfstream.actuate.links import ActionableFindings
from sdfstream.records.units import NS_PER_S

S = NS_PER_S


def finding(**more: object) -> dict[str, object]:
    base = {
        "id": "f", "kind": "congestion", "status": "open", "confidence": 0.9, "detail": "queue l0->s0",
        "subject": {"type": "link", "id": "l0--s0"}, "suspects": [{"id": "s0->l0", "probability": 0.1}],
    }  # fmt: skip
    return base | more


def test_findings_point_at_link_directions() -> None:
    found = ActionableFindings(("congestion",))
    assert not found.take(finding(), S)
    assert [t.directions for t in found] == [("l0->s0",)]
    found.take(finding(detail=""), S)
    assert [t.directions for t in found] == [("l0->s0", "s0->l0")], "which of the two is not known"
    suspects = [{"id": "l0->s0", "probability": 0.5}, {"id": "l0->s1", "probability": 0.5}]
    found.take(finding(subject={"type": "switch", "id": "l0"}, suspects=suspects, detail="queue l0->s0 l0->s1"), S)
    assert [t.directions for t in found] == [("l0->s0", "l0->s1")]
    found.take(finding(status="resolved"), S)
    assert not list(found)
    assert found.take(finding(kind="link-down"), S) and not found.take(finding(kind="link-down", status="update"), S)
