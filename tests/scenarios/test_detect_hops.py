"""Queue and utilisation of links, against a twin's truth. Limits were set on seeds 1 and 2."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream import pipeline
from sdfstream.detect.stage import DetectStage
from sdfstream.records.message import Event
from sdfstream.records.topics import HOP
from sdfstream.records.units import NS_PER_S
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


def test_says_the_same_however_the_stream_is_cut_and_after_a_restart() -> None:
    def twin() -> Twin:
        fabric = {"kind": "leaf-spine", "hosts": 4, "leaves": 2, "spines": 2, "gbps": 10}
        fault = {"kind": "congested-link", "at": 9, "direction": "random"}
        return Twin(parse({"seconds": 14, "fabric": fabric, "known": {"flows": True}, "faults": [fault]}, "here"), 5)

    one, end_ns = twin(), twin().start_ns + 14 * NS_PER_S
    before = [stage for stage in pipeline.stages(Settings()) if stage.name in STAGES[:2]]
    made = list(replay(one.messages(), before, one.start_ns, end_ns))
    stream = sorted([*twin().messages(), *made], key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))

    def said(cut: int, restart: int) -> list[bytes]:
        stage, found = DetectStage(), []
        for first in range(0, len(stream), cut):
            part = stream[first : first + cut]
            found += stage.step(part, part[-1].bus_at_ns)
            if first // cut == restart:
                saved, stage = stage.snapshot(), DetectStage()
                stage.restore(saved)
        return [o.body.serialize().to_pybytes() for o in found if o.topic == HOP.name and not isinstance(o.body, Event)]

    whole = said(len(stream), -1)
    assert len(whole) > 4
    assert whole == said(97, -1) == said(1009, len(stream) // 1009 * 3 // 4)
