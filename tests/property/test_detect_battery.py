"""The battery that every stage passes."""

from sdfstream.detect.stage import DetectStage
from tests.checks import check_stage
from tests.fixtures.leafspine import Fabric, Fault, Shape


def test_detect_passes_the_battery() -> None:
    faults = [
        Fault(("h03/r1->l3", "l3->h03/r1"), 3, 5, drop=1),
        Fault(("l0->s1",), 3, 6, delay_us=3000, ce=0.5),
        Fault(("l0->s2",), 2, 6, rewrite_dscp=7),
    ]
    messages = list(Fabric(5, faults, Shape(hosts=4, leaves=4, peers=2)).messages(7))
    said = check_stage(DetectStage, messages)
    assert {o.topic for _, o in said} == {"sdf.event.finding.v1", "sdf.state.nic.v1"}
