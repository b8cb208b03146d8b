"""Slow queue pairs: findings when nothing else explains them, a symptom when something does, never without a cause."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import Fabric, Fault, Shape
from tests.fixtures.trainers import Trainer, Training, together

SHAPE = Shape(hosts=6, leaves=6, ports=3)
LEAN = replace(
    SHAPE, ports=1, peers=1, rate_hz=4.0, liveness=False, owd=False, clocks=False, ports_read=False, flush_ms=200
)
"""Probes beside the point: few, and published seldom."""


HOSTS = [f"h{i:02d}" for i in range(SHAPE.hosts)]


def busiest(jobs: Training) -> str:
    """The direction of a fabric link that most queue pairs of the first job cross."""
    uses: dict[str, int] = {}
    for pair in jobs.pairs[jobs.trainers[0].job]:
        for link in {*jobs.routes[pair.flow()], *jobs.routes[pair.answers()]}:
            uses[link] = uses.get(link, 0) + ("/" not in link)
    return max(uses, key=lambda link: (uses[link], link))


def of_kind(reported: Reported, kind: str = "qp-slow") -> list[tuple[float, dict]]:
    return [(t, f) for t, f in reported.findings("open") if f["kind"] == kind]


@pytest.mark.parametrize("seed", range(10))
def test_clean_noisy_jobs_that_start_pause_and_end_are_no_finding(seed: int) -> None:
    fabric = Fabric(seed, [], LEAN)
    hosts = tuple(fabric.hosts)
    trainers = [
        Trainer("ring", hosts, at_s=1.0),
        Trainer("late", hosts[:3], at_s=8.0, until_s=15.0, period_s=1.7, busy_s=0.4, chunk_us=2500),
        Trainer("big", hosts[2:5], at_s=4.0, chunk_bytes=1 << 20, chunk_us=20_000, period_s=3.1, busy_s=1.1),
        Trainer("steady", hosts[::2], at_s=0.5, until_s=12.0, period_s=1e9, busy_s=1e9),
    ]
    jobs = Training(fabric, trainers, seed)
    assert run(DetectStage(), together(fabric.messages(20), jobs.messages(20))).opened() == []


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_pair_that_only_itself_shows_to_be_slow_is_a_finding_of_its_own(seed: int) -> None:
    fabric = Fabric(seed, [], LEAN)
    number = int(np.random.default_rng(seed).integers(20))
    jobs = Training(fabric, [Trainer("ring", tuple(fabric.hosts), slow={number: (9.0, 16.0, 12.0)})], seed)
    reported = run(DetectStage(), together(fabric.messages(22), jobs.messages(22)))
    ((at_s, finding),) = of_kind(reported)
    assert finding["subject"] == {"type": "qp", "id": jobs.pairs["ring"][number].qp}
    assert 9.5 < at_s < 12.5 and finding["class"] == "workload" and finding["jobs"] == ["ring"]
    assert finding["detail"].startswith("in band only") and finding["cause"] == "unknown"
    duration = next(e for e in finding["evidence"] if e["what"] == "chunk-duration")
    assert duration["value"] > 4 * duration["baseline"]
    assert [k for _, k, _ in reported.opened()] == ["qp-slow"] == [k for _, k, _ in reported.resolved()]


@pytest.mark.parametrize("seed", range(3))
def test_under_a_root_cause_slow_queue_pairs_are_its_symptoms(seed: int) -> None:
    link_direction = busiest(Training(Fabric(seed, [], SHAPE), [Trainer("ring", tuple(HOSTS))], seed))
    fabric = Fabric(seed, [Fault((link_direction,), 6, 11, delay_us=4000)], SHAPE)
    jobs = Training(fabric, [Trainer("ring", tuple(HOSTS))], seed)
    crossing = {p.qp for p in jobs.crossing("ring", link_direction)}
    reported = run(DetectStage(), together(fabric.messages(15), jobs.messages(15)))
    assert of_kind(reported) == []
    said = [f for _, f in reported.findings() if f["kind"] == "congestion" and f["subject"]["type"] == "link"]
    symptoms = {s["subject"]["id"] for f in said for s in f["symptoms"] if s["kind"] == "qp-slow"}
    assert symptoms and symptoms <= crossing and said[0]["jobs"] == ["ring"]


@pytest.mark.parametrize("seed", range(3))
def test_what_slow_queue_pairs_have_in_common_is_suspected_where_no_probe_sees_it(seed: int) -> None:
    """The queue of another class: the probes' class passes it."""
    fabric = Fabric(seed, [], LEAN)
    link_direction = busiest(Training(fabric, [Trainer("ring", tuple(HOSTS), pairs=4, dscp=26)], seed))
    fabric = Fabric(seed, [Fault((link_direction,), 9, 1e9, delay_us=8000, dscp=26)], LEAN)
    jobs = Training(fabric, [Trainer("ring", tuple(fabric.hosts), pairs=4, dscp=26)], seed)
    reported = run(DetectStage(), together(fabric.messages(16), jobs.messages(16)))
    found = [f for _, f in reported.findings() if f["kind"] == "qp-slow" and f["subject"]["type"] == "job"]
    assert found and found[0]["cause"] == "queueing"
    assert link_direction in [s["id"] for s in found[-1]["suspects"]]
    assert "class" in found[0]["detail"] or "no probe" in found[0]["detail"]


def test_a_job_that_slows_as_a_whole_is_one_finding_and_after_a_minute_normal() -> None:
    fabric = Fabric(3, [], replace(LEAN, liveness=False, traced=False))
    slow = {i: (10.0, 1e9, 8.0) for i in range(24)}
    jobs = Training(fabric, [Trainer("ring", tuple(fabric.hosts), slow=slow)], 3)
    reported = run(DetectStage(), jobs.messages(90))
    ((at_s, finding),) = of_kind(reported)
    assert finding["subject"] == {"type": "job", "id": "ring"} and 12 < at_s < 20
    assert len(reported.resolved()) == 1 and reported.resolved()[0][0] > 70


def test_batches_that_cannot_be_read_are_counted_and_the_rest_goes_on() -> None:
    fabric = Fabric(3, [], LEAN)
    jobs = Training(fabric, [Trainer("ring", tuple(fabric.hosts))], 3)
    message = next(m for m in jobs.messages(5) if m.topic == "sdf.derived.qp.v1")
    stage = DetectStage()
    stage.step([replace(message, body=message.body.drop_columns(["qp"]))], message.bus_at_ns)
    stage.step([replace(message, body=message.body.drop_columns(["owd_p50_ns", "duration_p50_ns"]))], message.bus_at_ns)
    assert stage.counters.get("refused", "column-missing") == 1
    stage.step([], message.bus_at_ns + 10**9)


@pytest.mark.parametrize("seed", range(5))
def test_a_job_that_is_set_up_wrongly_is_found_from_its_first_seconds(seed: int) -> None:
    """RoCEv1 in band: 250 µs where probes take 20 µs, from the beginning on, so that no baseline shows it."""
    fabric = Fabric(seed, [], replace(SHAPE, ports=1, clocks=False, ports_read=False))
    hosts = tuple(fabric.hosts)
    jobs = Training(
        fabric, [Trainer("v1", hosts[:4], at_s=1.0, extra_us=240), Trainer("v2", hosts[2:], at_s=1.0)], seed
    )
    reported = run(DetectStage(), together(fabric.messages(12), jobs.messages(12)))
    ((told_s, finding),) = of_kind(reported, "inband-mismatch")
    assert (finding["subject"], finding["class"]) == ({"type": "job", "id": "v1"}, "configuration")
    assert finding["cause"] == "class-mismatch" and finding["jobs"] == ["v1"] and told_s < 9
    shown = {e["what"]: e for e in finding["evidence"]}["inband-delay"]
    assert shown["value"] > 180 > 60 > shown["baseline"]
    assert reported.opened() == [(told_s, "inband-mismatch", "v1")]


@pytest.mark.parametrize("seed", range(5))
def test_it_is_found_where_one_of_its_paths_stands_in_a_queue_too(seed: int) -> None:
    """Of that one alone what probes meet is no third of it."""
    plain = Fabric(seed, [], replace(SHAPE, ports=1, clocks=False, ports_read=False))
    nic = sorted(plain.nics)[0]
    queue = Fault((f"{plain.leaf[nic]}->{nic}",), 1.0, 1e9, delay_us=90)
    fabric = Fabric(seed, [queue], plain.shape)
    jobs = Training(fabric, [Trainer("v1", tuple(fabric.hosts)[:4], at_s=1.0, extra_us=240)], seed)
    reported = run(DetectStage(), together(fabric.messages(12), jobs.messages(12)))
    ((told_s, finding),) = of_kind(reported, "inband-mismatch")
    assert finding["subject"] == {"type": "job", "id": "v1"} and told_s < 9
    evidence = {e["what"]: e["value"] for e in finding["evidence"]}
    assert evidence["slow-queue-pairs"] == evidence["compared-queue-pairs"]


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_that_probes_meet_too_is_no_mismatch(seed: int) -> None:
    fabric = Fabric(seed, [], replace(SHAPE, ports=1, clocks=False, ports_read=False))
    into = [f"{fabric.leaf[n]}->{n}" for n in fabric.nics]
    slow = Fabric(seed, [Fault(tuple(into), 4.0, 12.0, delay_us=400)], replace(fabric.shape))
    jobs = Training(slow, [Trainer("ring", tuple(fabric.hosts), at_s=1.0)], seed)
    reported = run(DetectStage(), together(slow.messages(12), jobs.messages(12)))
    assert of_kind(reported, "inband-mismatch") == []
