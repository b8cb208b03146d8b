"""What a path crosses, from declared cabling and from traces with gaps."""

import pytest

from sdfstream.errors import FormatError
from sdfstream.records.topology import Topology

NODES = ("l0", "l1", "s0", "s1")


def address(a: str, b: str) -> str:
    """Address of b's interface towards a."""
    return f"{a}>{b}".replace("/", ".")


def declare(*links: tuple[str, str]) -> Topology:
    def end(node: str, other: str) -> dict:
        return {"node": node, "port": other, "address": address(other, node) + "/31"}

    nics = sorted({n for link in links for n in link if "/" in n})
    return Topology(
        {
            "nodes": [],
            "links": [{"id": f"{a}--{b}", "a": end(a, b), "b": end(b, a)} for a, b in links],
            "nics": [{"id": n} for n in nics],
        }
    )


FABRIC = declare(
    ("h0/r0", "l0"), ("h1/r0", "l0"), ("h2/r0", "l1"), ("l0", "s0"), ("l0", "s1"), ("l1", "s0"), ("s1", "l1")
)


def test_without_a_trace_every_shortest_route_has_its_share() -> None:
    assert FABRIC.equal_cost("h0/r0", "h2/r0") == {
        "node l0": 1.0,
        "l0->s0": 0.5,
        "l0->s1": 0.5,
        "node s0": 0.5,
        "node s1": 0.5,
        "s0->l1": 0.5,
        "s1->l1": 0.5,
        "node l1": 1.0,
    }
    assert FABRIC.equal_cost("h0/r0", "h1/r0") == {"node l0": 1.0}
    assert FABRIC.equal_cost("h0/r0", "h9/r0") == {}


FULL = ("h0.r0>l0", "l0>s1", "s1>l1")
CERTAIN = {"node l0": 1.0, "l0->s1": 1.0, "node s1": 1.0, "s1->l1": 1.0, "node l1": 1.0}


@pytest.mark.parametrize(
    "hops",
    [FULL, (None, *FULL[1:]), (*FULL[:2], None), (None, None, FULL[2]), (None, FULL[1], None), (*FULL, "l1>h2.r0")],
)
def test_a_gap_follows_from_the_hops_that_answered(hops: tuple[str | None, ...]) -> None:
    assert FABRIC.traced("h0/r0", "h2/r0", hops) == CERTAIN


def test_a_gap_that_does_not_follow_is_shared_out() -> None:
    assert FABRIC.traced("h0/r0", "h2/r0", (FULL[0], None, None)) == FABRIC.equal_cost("h0/r0", "h2/r0")


def test_a_route_that_is_not_declared_has_only_what_answered() -> None:
    elements = FABRIC.traced("h0/r0", "h2/r0", (FULL[0], "l0>s1", "s1>l0", "l0>s0", "s0>l1"))
    assert elements["l0->s1"] == elements["s1->l0"] == elements["s0->l1"] == 1.0


def test_without_a_declaration_addresses_name_the_links() -> None:
    assert Topology().traced("a/0", "b/0", ("x", None, "y")) == {"->y": 1.0}


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
