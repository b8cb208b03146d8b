"""Of two links in a row that every path crosses both of, traces of silent paths name the dead one."""

from __future__ import annotations

from pathlib import Path

import pytest

import sdfstream.twin
from sdfstream.detect.stage import DetectStage
from sdfstream.records.fabric import SILENT_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import LIVENESS, TOPOLOGY
from sdfstream.score.detect.run import run as score
from sdfstream.settings import Settings
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin
from tests.fixtures.drive import begin, run

SCENARIOS = Path(sdfstream.twin.__file__).parent / "scenarios"


@pytest.mark.parametrize("seed", [509, 510])
@pytest.mark.parametrize("name", ["link-two-leaves", "link-two-pods"])
def test_the_dead_link_is_named_with_its_direction(name: str, seed: int) -> None:
    made = score(SCENARIOS / f"{name}.yaml", seed, Settings())
    (fault,) = made.faults
    assert (fault.exact, fault.cause, fault.findings, made.false_alarms) == (True, True, 1, [])
    assert fault.delay_s is not None
    assert fault.delay_s < 2.0


def messages() -> list[Message]:
    """What agents say of liveness and routes while a link of two leaves is dead."""
    scenario = {
        "seconds": 6,
        "fabric": {"kind": "leaf-spine", "hosts": 8, "leaves": 2, "spines": 3},
        "probes": {"peers": 4, "ports": 2},
        "faults": [{"kind": "link-down", "at": 3}],
    }
    made = Twin(parse(scenario, "s.yaml"), 5).messages()
    return [m for m in made if m.topic in (LIVENESS.name, TOPOLOGY.name)]


def test_a_detector_that_is_restored_meanwhile_says_the_same() -> None:
    said = messages()
    first_ns = min(m.bus_at_ns for m in said if isinstance(m.body, Event) and m.body.type == SILENT_TYPE)
    whole = run(DetectStage(), said)
    assert any(kind == "link-down" for _, kind, _ in whole.opened())
    for after_ms in (20, 130):
        begun = begin(DetectStage(), said, (first_ns - said[0].bus_at_ns) / 1e9 + after_ms / 1e3)
        restored = DetectStage()
        restored.restore(begun.state)
        assert restored.snapshot() == begun.state
        again = run(DetectStage(), said, begun=begun)
        assert [(at, o.body) for at, o in again.outputs] == [(at, o.body) for at, o in whole.outputs]
