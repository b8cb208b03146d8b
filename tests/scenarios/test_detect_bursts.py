"""Bursts of a fifth of a second: told once as information, then as one finding that counts them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.faultlist import busy_link
from tests.fixtures.leafspine import Fabric, Fault, Shape

SHAPE = Shape(hosts=6, rails=1, leaves=3, ports=2, rate_hz=12, clocks=False, bursts=False)
FIRST_S, EVERY_S, LENGTH_S = 9.0, 7.0, 0.2


def bursts(link: str, times: int) -> list[Fault]:
    """An incast's queue again and again."""
    begins = [FIRST_S + k * EVERY_S for k in range(times)]
    return [Fault((link,), at, at + LENGTH_S, delay_us=160) for at in begins]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("known", [True, False])
def test_bursts_into_a_nic_are_told_once_then_counted_with_their_period(seed: int, known: bool) -> None:
    shape = replace(SHAPE, declared=known, traced=known)
    fabric = Fabric(seed, [], shape)
    nic = fabric.nics[seed % len(fabric.nics)]
    reported = run(DetectStage(), Fabric(seed, bursts(f"{fabric.leaf[nic]}->{nic}", 3), shape).messages(26))
    told = [(t, f) for t, f in reported.findings() if f["severity"] != "info" or f["kind"] == "bursts"]
    assert {(f["kind"], f["subject"]["id"], f["severity"]) for _, f in told} == {("bursts", nic, "info")}
    assert [f["status"] for _, f in told][:2] == ["resolved", "open"] and len({f["id"] for _, f in told}) == 1
    assert told[0][0] - FIRST_S < 2.5
    evidence = {e["what"]: e["value"] for e in told[-1][1]["evidence"]}
    assert evidence["bursts"] == 3 and abs(evidence["period"] - EVERY_S) < 0.3
    assert 100 <= evidence["burst-length"] <= 400 and 80 < evidence["delay-excess"] < 300


@pytest.mark.parametrize("seed", range(5))
def test_a_burst_of_a_fabric_link_is_laid_to_it(seed: int) -> None:
    shape = replace(SHAPE, leaves=6, ports=3)
    leaf, spine = busy_link(Fabric(seed, [], shape), np.random.default_rng(seed))
    reported = run(DetectStage(), Fabric(seed, bursts(f"{leaf}->{spine}", 1), shape).messages(12))
    assert [(f["status"], f["subject"]["id"]) for _, f in reported.findings() if f["kind"] == "bursts"] == [
        ("resolved", f"{leaf}--{spine}")
    ]


@pytest.mark.parametrize("seed", range(5))
def test_a_queue_that_stays_is_congestion_and_no_burst(seed: int) -> None:
    fabric = Fabric(seed, [], SHAPE)
    nic = fabric.nics[seed % len(fabric.nics)]
    fault = Fault((f"{fabric.leaf[nic]}->{nic}",), FIRST_S, FIRST_S + 4, delay_us=160)
    reported = run(DetectStage(), Fabric(seed, [fault], SHAPE).messages(17))
    assert {f["kind"] for _, f in reported.findings()} == {"congestion"}
