"""Outages too short to count as silence: told once, resolved from the start, and by nobody taken for more."""

from __future__ import annotations

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
    assert finding["subject"]["id"] == f"{leaf}--{spine}" and told_s - AT_S < 2
    evidence = {e["what"]: e["value"] for e in finding["evidence"]}
    assert 200 < evidence["silent-for"] < 500 and evidence["silent-paths"] >= 4
    lasted_ns = finding["resolved_at_ns"] - finding["since_at_ns"]
    assert 0.2e9 < lasted_ns < 0.5e9
