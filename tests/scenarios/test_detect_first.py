"""One fault each, end to end through the stage: the right subject, once, and silence when nothing is wrong."""

import pytest

from sdfstream.detect.config import DetectConfig
from sdfstream.detect.stage import DetectStage
from tests.fixtures.drive import run
from tests.fixtures.leafspine import Fabric, Fault

NIC = ("h03/r1->l1", "l1->h03/r1")
CASES = {
    "nic-down": ([Fault(NIC, 10, 16, drop=1)], "nic-down", "h03/r1", 1.6),
    "spine-down": (
        [Fault(tuple(f"l{i}->s1" for i in range(4)) + tuple(f"s1->l{i}" for i in range(4)), 10, 16, drop=1)],
        "link-down",
        "s1",
        1.6,
    ),
    "congested-spine": ([Fault(tuple(f"s2->l{i}" for i in range(4)), 10, 16, delay_us=3000)], "congestion", "s2", 1.5),
    "gray-nic": ([Fault(("h03/r1->l1",), 10, 16, drop=0.1)], "loss", "h03/r1", 4.0),
    "host-killed": ([Fault(host="h05", at_s=10, until_s=16)], "host-silent", "h05", 3.6),
    "agent-killed": ([Fault(agent="h05", at_s=10, until_s=16)], "agent-stale", "h05", 3.6),
}


@pytest.mark.parametrize("name", CASES)
def test_one_fault_is_one_finding(name: str) -> None:
    faults, kind, subject, limit_s = CASES[name]
    told = run(DetectStage(DetectConfig()), Fabric(3, faults).messages(20))
    opened = told.opened()
    print(name, opened)
    assert [(k, s) for _, k, s in opened] == [(kind, subject)]
    assert 10 < opened[0][0] < 10 + limit_s


@pytest.mark.parametrize("faults", [[], [Fault(NIC, 10, 10.5, drop=1)], [Fault(nic="h05/r0", at_s=10, until_s=14)]])
def test_no_finding_when_clean_on_a_short_gap_or_when_a_nic_leaves(faults: list[Fault]) -> None:
    told = run(DetectStage(), Fabric(4, faults).messages(18))
    assert told.opened() == []
