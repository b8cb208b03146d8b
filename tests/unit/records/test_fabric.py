"""A declared topology: what cannot be read of it, and what its addresses, speeds and rails are."""

from dataclasses import replace

import pytest

from sdfstream.errors import FormatError
from sdfstream.records.fabric import QueuePair, Topology, answered


def test_what_cannot_be_read_is_left_out_and_listed() -> None:
    odd = Topology({"links": [{}, {"a": {"node": "l0"}}, {"a": {"node": "l0"}, "b": {"node": "s0"}}], "nics": [{}]})
    assert odd.leaf_of == {} and odd.neighbours == {"l0": {"s0"}, "s0": {"l0"}}
    assert {fault.field for fault in odd.faults} == {"nics", "links", "links.id"} and not [*odd.faults_in("nodes")]
    assert odd.refuse("links", "nics", absent=False) is odd
    with pytest.raises(FormatError, match="topology"):
        odd.refuse("links")


def link(a: str, at_a: str, b: str, at_b: str, speed_mbps: int) -> dict[str, object]:
    ends = {"a": {"node": a, "address": at_a}, "b": {"node": b, "address": at_b}}
    return {"id": f"{a}--{b}", **ends, "speed_mbps": speed_mbps}


DECLARED = {
    "nodes": [],
    "links": [
        link("h0/r0", "1.0", "l0", "1.1", 10),
        link("l0", "2.0", "s0", "2.1", 5),
        link("l1", "3.0", "s0", "3.1", 5),
        link("l0", "4.0", "s1", "4.1", 5),
    ],
    "nics": [{"id": "h0/r0", "rail": 3}],
}


def test_hop_addresses_are_link_directions() -> None:
    topology = Topology(DECLARED)
    assert (
        topology.direction("2.1") == "l0->s0"
        and topology.hop("l0->s0") == "2.1"
        and topology.speed_bps("2.1") == 5_000_000
    )
    assert topology.direction("9.9") == "->9.9" and topology.hop("->9.9") == "9.9" and topology.speed_bps("9.9") == 0
    assert (
        topology.nic_speed_bps("h0/r0") == 10_000_000
        and topology.rail("h0/r0") == "3"
        and topology.rail("h7/r1") == "r1"
    )
    assert not topology.contradicted_by(("1.1", "2.1", "3.0")) and topology.contradicted_by(("1.1", "4.1", "3.0"))
    assert not topology.contradicted_by(("1.1", None, "3.0")) and not topology.contradicted_by(("1.1", "9.9", "3.0"))
    with pytest.raises(FormatError):
        Topology({"links": [{"a": 5}]}).refuse("links")


def test_a_cable_is_found_by_node_and_port() -> None:
    ends = {"node": "l0", "port": "Ethernet1/1", "address": "10.0.0.1"}, {"node": "s0", "port": "Ethernet7"}
    topology = Topology(
        {"links": [{"id": "l0--s0", "a": ends[0], "b": ends[1]}, {"a": {"node": "x"}, "b": {"node": "y"}}]}
    )
    found = topology.cable_at("l0", "Ethernet1/1")
    assert found is not None and found.id == "l0--s0"
    assert topology.cable_at("s0", "Ethernet7") is found
    assert topology.cable_at("s0", "Ethernet1/1") is None and topology.cable_at("x", "") is None


def test_answers_go_by_the_present_path_of_the_far_end_of_the_same_two_nics() -> None:
    near = QueuePair("a/0#1", 0, 1, "a/0", "b/0", "10.0.0.2", 7, 4791, answer_path=9, peer_qp="b/0#2")
    far = QueuePair("b/0#2", 1, 0, "b/0", "a/0", "10.0.0.1", 5, 4791)
    assert answered(near, None).answers().source_port == 9
    assert answered(near, far).answers().source_port == 5
    assert answered(near, replace(far, dst="c/0")) == near == answered(near, replace(far, qp="b/0#3"))
