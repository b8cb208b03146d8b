"""The battery that every stage passes."""

from sdfstream.detect.stage import DetectStage
from tests.checks import check_stage
from tests.fixtures.leafspine import Fabric, Fault, Shape
from tests.fixtures.trainers import Trainer, Training, together


def test_detect_passes_the_battery() -> None:
    faults = [
        Fault(("h03/r1->l3", "l3->h03/r1"), 3, 5, drop=1),
        Fault(("l0->s1",), 3, 6, delay_us=3000, ce=0.5),
        Fault(("l0->s2",), 2, 6, rewrite_dscp=7),
    ]
    fabric = Fabric(5, faults, Shape(hosts=4, leaves=4, peers=2))
    jobs = Training(fabric, [Trainer("a", ("h00", "h02", "h03"), until_s=5), Trainer("b", ("h01", "h03"), at_s=1)])
    messages = list(together(fabric.messages(7), jobs.messages(7)))
    said = check_stage(DetectStage, messages)
    assert {o.topic for _, o in said} == {"sdf.event.finding.v1", "sdf.state.nic.v1"}
    assert any(o.body.data.get("jobs") for _, o in said if o.topic == "sdf.event.finding.v1")
