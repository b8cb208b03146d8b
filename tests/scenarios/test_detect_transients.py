"""Outages too short to count as silence: told once, resolved from the start, and by nobody taken for more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.faultlist import busy_link
from tests.fixtures.leafspine import Fabric, Fault, Shape

SHAPE = Shape(hosts=6, leaves=6, ports=3, rate_hz=12, retrace_s=0.2, owd=False, clocks=False)
AT_S, UP_S = 6.0, 6.33


@pytest.mark.parametrize("rerouted", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_link_down_for_a_third_of_a_second_is_told_with_its_evidence(seed: int, rerouted: bool) -> None:
    fabric = Fabric(seed, [], SHAPE)
    leaf, spine = busy_link(fabric, np.random.default_rng(seed))
    out, back = f"{leaf}->{spine}", f"{spine}->{leaf}"
    faults = [Fault((out, back), AT_S, UP_S, drop=1)]
    if rerouted:  # the leaf leaves the link alone from then on
        faults.append(Fault((out,), UP_S, 20, rehash=leaf))
    reported = run(DetectStage(), Fabric(seed, faults, SHAPE).messages(10))
    ((told_s, finding),) = reported.findings()
    assert (finding["status"], finding["severity"], finding["kind"]) == ("resolved", "info", "link-down")
    assert finding["subject"]["id"] == f"{leaf}--{spine}" and told_s - AT_S < 1.1
    evidence = {e["what"]: e["value"] for e in finding["evidence"]}
    assert 200 < evidence["silent-for"] < 500 and evidence["silent-paths"] >= 4
    lasted_ns = finding["resolved_at_ns"] - finding["since_at_ns"]
    assert 0.2e9 < lasted_ns < 0.5e9


@pytest.mark.parametrize("seed", range(1, 6))
def test_three_probes_lost_by_every_path_of_a_link_are_its_outage(seed: int) -> None:
    """300 ms at 10 Hz: fewer lost probes in a row than an outage of a single path must show."""
    shape = replace(SHAPE, rate_hz=10)
    leaf, spine = busy_link(Fabric(seed, [], shape), np.random.default_rng(seed))
    faults = [
        Fault((f"{leaf}->{spine}", f"{spine}->{leaf}"), AT_S, AT_S + 0.3, drop=1),
        Fault((f"{leaf}->{spine}",), AT_S + 0.3, 20, rehash=leaf),
    ]
    reported = run(DetectStage(), Fabric(seed, faults, shape).messages(10))
    ((told_s, finding),) = reported.findings()
    assert (finding["status"], finding["subject"]["id"]) == ("resolved", f"{leaf}--{spine}") and told_s - AT_S < 1.1


@pytest.mark.parametrize("seed", range(1, 6))
def test_gray_loss_of_a_fifth_is_no_outage(seed: int) -> None:
    shape = replace(SHAPE, rate_hz=10)
    leaf, spine = busy_link(Fabric(seed, [], shape), np.random.default_rng(seed))
    faults = [Fault((f"{leaf}->{spine}", f"{spine}->{leaf}"), 4.0, drop=0.1)]
    reported = run(DetectStage(), Fabric(seed, faults, shape).messages(16))
    assert [f for _, f in reported.findings() if f["kind"] in ("link-down", "link-flap", "nic-down")] == []


@pytest.mark.parametrize("lasts_s", [0.8, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_an_outage_between_two_leaves_is_told_though_its_place_stays_in_doubt(seed: int, lasts_s: float) -> None:
    """All paths cross a link of either leaf: blame waits for what tells them apart, and meanwhile it is over."""
    shape = replace(SHAPE, hosts=8, leaves=4, rate_hz=10, liveness_ms=600)  # two leaves a rail
    leaf, spine = "l0", f"s{seed - 1}"
    faults = [Fault((f"{leaf}->{spine}", f"{spine}->{leaf}"), AT_S, AT_S + lasts_s, drop=1)]
    reported = run(DetectStage(), Fabric(seed, faults, shape).messages(12))
    ((told_s, finding),) = reported.findings()
    assert (finding["status"], finding["severity"], finding["kind"]) == ("resolved", "info", "link-down")
    assert finding["subject"]["id"] == spine and told_s - AT_S < lasts_s + 1
    evidence = {e["what"]: e["value"] for e in finding["evidence"]}
    assert 1e3 * (lasts_s - 0.2) < evidence["silent-for"] < 1e3 * (lasts_s + 0.4)


def test_blame_that_stands_is_no_evidence_for_itself() -> None:
    """Of two links in a row the likelier is named, and stays, with the odds that evidence gives it and the other."""
    shape = replace(SHAPE, hosts=8, leaves=4, rate_hz=10, liveness_ms=600)
    reported = run(DetectStage(), Fabric(1, [Fault(("l0->s0",), AT_S, drop=1)], shape).messages(10))
    said = [finding for _, finding in reported.findings() if finding["kind"] == "link-down"]
    assert said and {f["subject"]["id"] for f in said} == {"l2--s0"}
    assert all(0.7 < f["confidence"] < 0.8 for f in said)
    assert all({s["id"] for s in f["suspects"]} == {"s0->l2", "l0->s0"} for f in said)
