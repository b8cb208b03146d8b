"""NICs fail one after another, their operator says why each time: from then on it is told, and only then."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pytest

from sdfstream.detect.learned import kind
from sdfstream.detect.stage import DetectStage
from sdfstream.numeric import codec
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import FINDING, OUTCOME, OVERRIDE
from sdfstream.runtime.replay import replay
from tests.checks import check_stage
from tests.fixtures.labels import label_messages
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape

S = 1_000_000_000
SHAPE = Shape(hosts=6, leaves=4, peers=2, ports=2, traced=False)
FIRST_S, EVERY_S, LASTS_S = 3.0, 2.2, 1.6
LABELS = kind.LEAST_LABELS
CAUSE = "port-disabled"
"""Rules cannot know it without port readings: they say ``link-failure``."""


@lru_cache(maxsize=2)
def stream(failures: int) -> list[Message]:
    """Agents' messages; NIC after NIC is silent for a while."""
    leaf = Fabric(5, [], SHAPE).leaf
    nics = [f"h{host:02}/r{rail}" for rail in (0, 1) for host in range(SHAPE.hosts)][:failures]
    faults = [
        Fault((f"{nic}->{leaf[nic]}", f"{leaf[nic]}->{nic}"), at_s, at_s + LASTS_S, drop=1)
        for nic, at_s in ((nic, FIRST_S + EVERY_S * i) for i, nic in enumerate(nics))
    ]
    return list(Fabric(5, faults, SHAPE).messages(FIRST_S + EVERY_S * failures + 1))


def findings(messages: list[Message], stage: DetectStage | None = None) -> list[dict[str, Any]]:
    """What detect says of NICs that are down, in order."""
    stage = stage or DetectStage()
    said = [output for message in messages for output in stage.step([message], message.bus_at_ns)]
    return [o.body.data for o in said if o.topic == FINDING.name and o.body.data["kind"] == "nic-down"]


@lru_cache(maxsize=2)
def without_labels(failures: int) -> list[dict[str, Any]]:
    return findings(stream(failures))


@lru_cache(maxsize=2)
def labelled(failures: int) -> list[Message]:
    """The same, and every finding is labelled a second after it opened."""
    opened = [f for f in without_labels(failures) if f["status"] == "open"]
    words = [m for i, f in enumerate(opened) for m in label_messages(f["id"], CAUSE, f["seen_at_ns"] + S, i)]
    return sorted([*stream(failures), *words], key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))


def test_a_cause_that_was_labelled_often_enough_is_told_the_next_time() -> None:
    before = [f for f in without_labels(12) if f["status"] == "open"]
    after = [f for f in findings(labelled(12)) if f["status"] == "open"]
    assert len(before) == len(after) > LABELS
    assert [f["cause"] for f in after] == ["link-failure"] * LABELS + [CAUSE] * (len(after) - LABELS)
    assert after[:LABELS] == before[:LABELS]
    for was, now in zip(before[LABELS:], after[LABELS:], strict=True):
        same = ("id", "kind", "severity", "subject", "since_at_ns", "suspects", "symptoms", "jobs", "remedy")
        assert [was[name] for name in same] == [now[name] for name in same]
        assert {fact["what"]: fact["value"] for fact in now["evidence"]}["labels"] >= LABELS


def test_labels_that_are_not_the_controllers_change_nothing_and_are_counted() -> None:
    forged = [
        Message(m.topic, m.key, Event(m.topic, "h03", m.body.id, 0, m.body.data), m.bus_at_ns, m.bus_seq)
        if m.topic == OUTCOME.name
        else m
        for m in labelled(12)
    ]
    stage = DetectStage()
    assert findings(forged, stage) == without_labels(12)
    assert stage.counters.get("refused", "label-foreign") == sum(m.topic == OUTCOME.name for m in forged)


def test_outcomes_that_no_operator_asked_for_change_nothing_and_are_counted() -> None:
    """An agent that writes as the controller does: it may write outcomes, but no overrides."""
    forged = [m for m in labelled(12) if m.topic != OVERRIDE.name]
    stage = DetectStage()
    assert findings(forged, stage) == without_labels(12)
    assert stage.counters.get("refused", "label-unasked") > LABELS


def test_labels_pass_the_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut anywhere, stopped and restored anywhere: the same bytes, learned causes among them."""
    monkeypatch.setattr(kind, "LEAST_LABELS", 3)
    said = check_stage(DetectStage, labelled(6), cut_rows=False)
    causes = {o.body.data["cause"] for _, o in said if o.topic == FINDING.name and o.body.data["kind"] == "nic-down"}
    assert causes == {"link-failure", CAUSE}


def test_a_snapshot_of_before_is_read_and_has_learned_nothing() -> None:
    stage, again = DetectStage(), DetectStage()
    findings(stream(6), stage)
    older = codec.load(stage.snapshot())
    del older["engines"]["learned"]
    again.restore(codec.dump(older))
    assert codec.load(again.snapshot())["engines"]["learned"]["findings"] == []


def test_a_replay_learns_from_the_recorded_labels_although_it_has_no_operators_keys() -> None:
    """With the controller among its stages too, which refuses what it cannot check."""
    from sdfstream import pipeline
    from sdfstream.settings import load

    stages = [stage for stage in pipeline.stages(load(None)) if stage.name in ("detect", "actuate")]
    assert {stage.name for stage in stages} == {"detect", "actuate"}
    said = [
        m.body.data
        for m in replay(labelled(12), stages, EPOCH, None)
        if m.topic == FINDING.name and m.body.data["kind"] == "nic-down"
    ]
    assert CAUSE in {finding["cause"] for finding in said}
