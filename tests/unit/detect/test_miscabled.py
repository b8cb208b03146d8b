"""A NIC on another leaf than planned, from what traces show; nothing without a plan."""

from sdfstream.detect.miscabled import MiscablingDetector
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from tests.unit.detect.instants import at
from tests.unit.records.test_routes import address, declare

PLAN = declare(
    ("h0/r0", "l0"), ("h0/r1", "l1"), ("h1/r0", "l2"), ("h1/r1", "l3"),
    *((f"l{i}", f"s{j}") for i in range(4) for j in range(2)),
)  # fmt: skip


def hops(first: str, a: str, spine: str, b: str) -> list[str | None]:
    """The addresses on a route from leaf `a` to leaf `b`, the gateway's own being `first`."""
    return [first, address(a, spine), address(spine, b)]


def feed(
    engine: MiscablingDetector, topology: Topology, sender: str, receiver: str, a: str, b: str, times: int = 3
) -> None:
    engine.declare(topology)
    for i in range(times):
        engine.take(sender, receiver, hops(address(sender, "l0"), a, f"s{i % 2}", b), 1000 + i)


def test_cables_as_planned_are_no_detection() -> None:
    engine = MiscablingDetector()
    feed(engine, PLAN, "h0/r0", "h1/r0", "l0", "l2", 9)
    assert engine.detections(at(0)) == []


def test_one_cable_on_another_leaf_is_found_by_sender_and_by_receiver() -> None:
    for sender, receiver, a, b in (("h0/r0", "h1/r0", "l3", "l2"), ("h1/r0", "h0/r0", "l2", "l3")):
        engine = MiscablingDetector()
        feed(engine, PLAN, sender, receiver, a, b, 2)
        assert engine.detections(at(0)) == []
        feed(engine, PLAN, sender, receiver, a, b, 1)
        (detection,) = engine.detections(at(0))
        assert detection.subject == Subject("nic", "h0/r0") and detection.kind == "miscabled"
        assert detection.detail == "h0/r0 on l3, planned on l0"


def test_swapped_cables_of_a_host_are_one_detection_that_ends_when_they_are_put_right() -> None:
    engine = MiscablingDetector()
    feed(engine, PLAN, "h0/r0", "h1/r0", "l1", "l2")
    feed(engine, PLAN, "h0/r1", "h1/r1", "l0", "l3")
    (detection,) = engine.detections(at(0))
    assert detection.subject == Subject("host", "h0") and len(detection.symptoms) == 2
    again = MiscablingDetector()
    again.restore(engine.snapshot())
    again.declare(PLAN)
    assert again.detections(at(0)) == [detection]
    feed(engine, PLAN, "h0/r0", "h1/r0", "l0", "l2")
    feed(engine, PLAN, "h0/r1", "h1/r1", "l1", "l3")
    assert engine.detections(at(0)) == []


def test_cables_of_two_hosts_in_each_others_leaf_are_one_detection_of_the_nic_that_showed_it_first() -> None:
    engine = MiscablingDetector()
    feed(engine, PLAN, "h1/r0", "h0/r1", "l0", "l1")
    (alone,) = engine.detections(at(0))
    engine.take("h0/r0", "h1/r1", hops("x", "l2", "s0", "l3"), 2000)
    for i in range(2):
        engine.take("h0/r0", "h1/r1", hops("x", "l2", "s0", "l3"), 2001 + i)
    (detection,) = engine.detections(at(0))
    assert detection.subject == alone.subject == Subject("nic", "h1/r0")
    assert detection.detail == "h1/r0 on l0, planned on l2; h0/r0 on l2, planned on l0"
    assert [s["subject"]["id"] for s in detection.symptoms] == ["h0/r0"]
    assert [nic for nic, _ in detection.suspects] == ["h1/r0", "h0/r0"]
    feed(engine, PLAN, "h1/r0", "h0/r1", "l2", "l1")
    (left,) = engine.detections(at(0))
    assert left.subject == Subject("nic", "h0/r0")


def test_one_nic_is_swapped_with_one_other_and_what_is_elsewhere_is_its_own_matter() -> None:
    engine = MiscablingDetector()
    feed(engine, PLAN, "h0/r0", "h1/r1", "l2", "l3")
    feed(engine, PLAN, "h1/r0", "h1/r1", "l1", "l3")
    assert [d.subject.id for d in engine.detections(at(0))] == ["h0/r0", "h1/r0"]


def test_short_routes_gaps_and_strangers_say_nothing() -> None:
    engine = MiscablingDetector()
    engine.declare(PLAN)
    for route in ([], [None], ["x"], [None, None, None], ["x", "y", "z"]):
        for _ in range(4):
            engine.take("h0/r0", "h1/r0", route, 5)
    feed(engine, Topology(), "h0/r0", "h1/r0", "l3", "l2")
    assert engine.detections(at(0)) == []
