"""RoCEv2 that does not pass while UDP does is a NIC's configuration, never a link; a dead link is still a link."""

from __future__ import annotations

import pytest

from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import Reported, run
from tests.fixtures.leafspine import EPOCH, Fabric, Fault, Shape
from tests.fixtures.roce_twins import Broken, Twins

BROKEN_S, RUN_S = 8, 16.0
SICK = "h00/r1"


def told(
    broken: Broken,
    *,
    declared: bool = True,
    faults: list[Fault] | None = None,
) -> Reported:
    shape = Shape(hosts=4, leaves=2, spines=2, declared=declared, traced=declared)
    fabric = Fabric(3, faults or [], shape)
    spans_ns = [(EPOCH + BROKEN_S * 1e9, EPOCH + 1e15)]
    return run(DetectStage(), Twins(broken, spans_ns).of(fabric.messages(RUN_S)))


@pytest.mark.parametrize("declared", [True, False])
def test_a_nic_that_rocev2_does_not_reach_is_a_fault_of_configuration(declared: bool) -> None:
    reported = told(lambda src, dst: SICK in (src, dst), declared=declared)
    ((at_s, kind, subject),) = reported.opened()
    assert (kind, subject) == ("transport-silent", SICK)
    assert at_s - BROKEN_S < 4
    finding = reported.findings("open")[0][1]
    assert (finding["class"], finding["cause"]) == ("configuration", "transport-mismatch")
    assert {e["what"] for e in finding["evidence"]} >= {"silent-paths", "udp-paths-alive"}
    assert len(finding["symptoms"]) == 12


def test_two_nics_that_probe_each_other_alone_are_no_reason_to_name_either() -> None:
    pair = {SICK, "h01/r1"}
    reported = told(lambda src, dst: {src, dst} == pair)
    assert {(kind, subject.split(">")[0]) for _, kind, subject in reported.opened()} == {("path-down", SICK)}


def test_transports_side_by_side_that_live_are_no_finding() -> None:
    assert told(lambda src, dst: False).opened() == []


def test_a_dead_nic_takes_both_transports_and_stays_a_dead_nic() -> None:
    leaf = Fabric(3, [], Shape(hosts=4, leaves=2, spines=2)).leaf[SICK]
    fault = Fault((f"{SICK}->{leaf}", f"{leaf}->{SICK}"), float(BROKEN_S), drop=1)
    kinds = {kind for _, kind, _ in told(lambda src, dst: False, faults=[fault]).opened()}
    assert "transport-silent" not in kinds
    assert kinds & {"nic-down", "link-down"}
