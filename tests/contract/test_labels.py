"""A label that the real controller accepted is one that detect learns from; one that it refused is none."""

from __future__ import annotations

from sdfstream.actuate.config import ActuateConfig
from sdfstream.detect.learned.causes import LearnedCauses
from sdfstream.records.finding import Evidence
from sdfstream.records.message import Event
from sdfstream.records.silences import FALSE_ALARM, LABEL
from sdfstream.records.topics import OUTCOME, OVERRIDE
from sdfstream.stats import Counters
from tests.fixtures.plant import Plan, Plant
from tests.unit.detect.learned.test_causes import lossy


def test_what_the_controller_accepts_teaches_and_what_it_refuses_does_not() -> None:
    plant, learned = Plant(Plan(hosts=4, spines=2), ActuateConfig(mode="enforce")), LearnedCauses(Counters("detect"))
    plant.run(1)
    for i in range(10):
        learned.assessed(lossy(i, 0.2))
        cause = FALSE_ALARM if i == 9 else "degraded-link"
        plant.override(LABEL, target={"type": "finding", "id": f"f{i}"}, set={"cause": cause, "note": "optics"})
        plant.override(LABEL, target={"type": "finding", "id": f"f{i}"}, set={"cause": "gremlins"})
        plant.override(LABEL, target={"type": "finding", "id": f"f{i}"}, set={"cause": "cabling"}, signature="AAAA")
        plant.run(0.2)
    said = [(m.topic, m.body) for m in plant.messages if m.topic == OVERRIDE.name]
    said += [(output.topic, output.body) for _, output in plant.outputs if output.topic == OUTCOME.name]
    for topic, body in said:
        assert isinstance(body, Event)
        (learned.take_override if topic == OVERRIDE.name else learned.take)(body)
    found = learned.assessed(lossy(99, 0.2))
    assert found.cause == "degraded-link"
    assert Evidence("labels", 10.0, "findings", "loss") in found.evidence
