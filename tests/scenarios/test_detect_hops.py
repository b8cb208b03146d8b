"""Queue and utilisation of links, against a twin's truth. Limits were set on seeds 1 and 2."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream import pipeline
from sdfstream.records.topics import HOP
from sdfstream.runtime.replay import replay
from sdfstream.score.detect.hops import HopErrors, HopTruth
from sdfstream.settings import Settings
from sdfstream.twin.scenario import parse
from sdfstream.twin.simulation import Twin

STAGES = ("sync", "workload", "detect")


def run(seed: int, **changes: object) -> HopErrors:
    scenario = {
        "seconds": 24,
        "fabric": {"kind": "leaf-spine", "hosts": 8, "leaves": 4, "spines": 2, "gbps": 10},
        "probes": {"peers": 4, "ports": 2},
        "load": {"utilisation": 0.3},
        "known": {"flows": True},
        "faults": [{"kind": "congested-link", "at": 14, "direction": "random"}],
        **changes,
    }
    twin = Twin(parse(scenario, "here"), seed)
    stages = [stage for stage in pipeline.stages(Settings()) if stage.name in STAGES]
    truth = HopTruth(twin)
    for message in replay(twin.messages(), stages, twin.start_ns, twin.start_ns + round(twin.seconds * 1e9)):
        truth.take(message)
    return truth.errors()


@pytest.mark.parametrize("seed", [21, 22])
def test_queue_and_utilisation_of_links(seed: int) -> None:
    found = run(seed)
    assert found.queue_bytes.size > 300
    assert np.sqrt(np.mean(found.queue_bytes**2)) < 5_000
    assert np.sqrt(np.mean(found.queue_ns**2)) < 4_000
    assert np.abs(found.queue_true[found.queue_true > 50e3]).size > 5
    assert found.within >= 0.95
    assert np.sqrt(np.mean(found.utilisation**2)) < 0.01


def test_nothing_is_said_where_neither_cabling_nor_traces_are_known() -> None:
    found = run(21, known={"topology": False, "traces": False}, seconds=12, faults=[])
    assert found.queue_bytes.size == found.utilisation.size == 0
    assert HOP.columns is not None
