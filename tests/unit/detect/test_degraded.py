"""An agent's own troubles become one finding of class telemetry, which ends with them."""

from __future__ import annotations

from typing import Any

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.stage import DetectStage
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import FINDING, LIVENESS
from sdfstream.records.units import NS_PER_S, TICK_NS

BEGIN_NS = 1_800_000_000 * NS_PER_S
TROUBLE = {"what": "agent.spill", "why": "/var takes nothing: No space left on device", "since_at_ns": 1}


def heartbeat(at_ns: int, troubles: list[dict[str, Any]]) -> Message:
    data: dict[str, Any] = {"host": "h1", "boot_id": "b", "seen_at_ns": at_ns, "complete": False, "changes": []}
    data |= {"troubles": troubles} if troubles else {}
    event = Event(LIVENESS.name, "h1", f"b-{at_ns}", at_ns, data)
    return Message(LIVENESS.name, "h1", event, at_ns, at_ns // TICK_NS, "b", at_ns // NS_PER_S)


def findings(stage: DetectStage, from_s: int, to_s: int, troubles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    said = []
    for tick in range(from_s * 10, to_s * 10):
        at_ns = BEGIN_NS + tick * TICK_NS
        outputs = stage.step([heartbeat(at_ns, troubles)] if tick % 10 == 0 else [], at_ns)
        bodies = [output.body for output in outputs if output.topic == FINDING.name]
        said += [dict(body.data) for body in bodies if isinstance(body, Event)]
    return said


def test_it_opens_resolves_and_survives_a_restart() -> None:
    stage = DetectStage(DetectConfig())
    assert findings(stage, 0, 5, []) == []
    (opened,) = findings(stage, 5, 10, [TROUBLE])
    assert (opened["kind"], opened["class"], opened["status"]) == ("agent-degraded", "telemetry", "open")
    assert opened["subject"] == {"type": "host", "id": "h1"}
    assert "agent.spill: /var takes nothing: No space left" in opened["detail"]
    again = DetectStage(DetectConfig())
    again.restore(stage.snapshot())
    (resolved,) = findings(again, 10, 20, [])
    assert (resolved["status"], resolved["id"]) == ("resolved", opened["id"])


def test_what_is_no_list_of_troubles_is_none() -> None:
    stage = DetectStage(DetectConfig())
    for odd in ("full", 5, {"a": 1}):
        assert findings(stage, 0, 1, odd) == []  # type: ignore[arg-type]
