"""Queues of a quarter of a second: told once they are over, placed, as information; nobody's where nothing queues."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.faultlist import busy_link
from tests.fixtures.leafspine import Fabric, Fault, Shape

SHAPE = Shape(hosts=12, leaves=6, ports=3, rate_hz=10, clocks=False, bursts=False)
AT_S, SECONDS = 20.0, 32.0


def burst(seed: int, at_s: float, lasts_s: float, delay_us: float = 1500.0) -> tuple[str, Fault]:
    """A queue on one direction of a link that many paths cross."""
    leaf, spine = busy_link(Fabric(seed, [], SHAPE), np.random.default_rng(seed))
    return f"{leaf}->{spine}", Fault((f"{leaf}->{spine}",), at_s, at_s + lasts_s, delay_us=delay_us, ce=0.25)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_queue_of_250_ms_is_told_where_it_stood_and_wakes_nobody(seed: int) -> None:
    direction, fault = burst(seed, AT_S + 0.03 * seed, 0.25)
    reported = run(DetectStage(), Fabric(seed, [fault], SHAPE).messages(SECONDS))
    ((told_s, finding),) = reported.findings()
    assert (finding["kind"], finding["status"], finding["severity"]) == ("congestion", "resolved", "info")
    assert finding["subject"]["id"].split("--") == sorted(direction.split("->"))
    assert finding["subject"]["direction"] == direction and finding["cause"] == "queueing"
    assert told_s - AT_S < 2.5
    evidence = {e["what"]: e["value"] for e in finding["evidence"]}
    assert 1000 < evidence["delay-excess"] < 2000 and evidence["slow-paths"] >= 6


def test_bursts_that_follow_each_other_are_told_together() -> None:
    faults = [burst(1, at_s, 0.25)[1] for at_s in (14.0, 18.0, 22.0, 40.0)]
    reported = run(DetectStage(), Fabric(1, faults, SHAPE).messages(44))
    first, second = (f for _, f in reported.findings())
    counts = [{e["what"]: e["value"] for e in f["evidence"]}.get("bursts-untold") for f in (first, second)]
    assert counts == [None, 2.0]


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_queue_that_stands_is_one_finding_and_no_burst_beside(seed: int) -> None:
    _, fault = burst(seed, AT_S, 4.0)
    reported = run(DetectStage(), Fabric(seed, [fault], SHAPE).messages(SECONDS))
    found = {f["id"]: f["severity"] for _, f in reported.findings()}
    assert list(found.values()) == ["warning"]


@pytest.mark.parametrize("seed", range(1, 4))
def test_processors_that_stall_now_and_then_and_a_clock_that_steps_are_no_bursts(seed: int) -> None:
    faults = [Fault(stall="h03", at_s=AT_S, until_s=AT_S + 0.2), Fault(clock="h01", at_s=24, until_s=24.2, step_us=300)]
    reported = run(DetectStage(), Fabric(seed, faults, replace(SHAPE, bursts=True)).messages(SECONDS))
    assert [f["detail"] for _, f in reported.findings() if f["detail"].startswith("burst")] == []
