"""What a path crosses, from declared cabling and from traces with gaps."""

import pytest

from sdfstream.records.topology import Wiring

NODES = ("l0", "l1", "s0", "s1")


def address(a: str, b: str) -> str:
    """Address of b's interface towards a."""
    return f"{a}>{b}".replace("/", ".")


def declare(*links: tuple[str, str]) -> Wiring:
    def end(node: str, other: str) -> dict:
        return {"node": node, "port": other, "address": address(other, node) + "/31"}

    nics = sorted({n for link in links for n in link if "/" in n})
    return Wiring.of(
        {
            "nodes": [],
            "links": [{"id": f"{a}--{b}", "a": end(a, b), "b": end(b, a)} for a, b in links],
            "nics": [{"id": n} for n in nics],
        }
    )


FABRIC = declare(
    ("h0/r0", "l0"), ("h1/r0", "l0"), ("h2/r0", "l1"), ("l0", "s0"), ("l0", "s1"), ("l1", "s0"), ("s1", "l1")
)


def test_without_a_trace_every_shortest_way_has_its_share() -> None:
    assert FABRIC.spread("h0/r0", "h2/r0") == {
        "node l0": 1.0,
        "l0->s0": 0.5,
        "l0->s1": 0.5,
        "node s0": 0.5,
        "node s1": 0.5,
        "s0->l1": 0.5,
        "s1->l1": 0.5,
        "node l1": 1.0,
    }
    assert FABRIC.spread("h0/r0", "h1/r0") == {"node l0": 1.0}
    assert FABRIC.spread("h0/r0", "h9/r0") == {}


FULL = ("h0.r0>l0", "l0>s1", "s1>l1")
CERTAIN = {"node l0": 1.0, "l0->s1": 1.0, "node s1": 1.0, "s1->l1": 1.0, "node l1": 1.0}


@pytest.mark.parametrize(
    "hops",
    [FULL, (None, *FULL[1:]), (*FULL[:2], None), (None, None, FULL[2]), (None, FULL[1], None), (*FULL, "l1>h2.r0")],
)
def test_a_gap_follows_from_the_hops_that_answered(hops: tuple[str | None, ...]) -> None:
    assert FABRIC.traced("h0/r0", "h2/r0", hops) == CERTAIN


def test_a_gap_that_does_not_follow_is_shared_out() -> None:
    assert FABRIC.traced("h0/r0", "h2/r0", (FULL[0], None, None)) == FABRIC.spread("h0/r0", "h2/r0")


def test_a_way_the_plan_does_not_know_claims_only_what_answered() -> None:
    parts = FABRIC.traced("h0/r0", "h2/r0", (FULL[0], "l0>s1", "s1>l0", "l0>s0", "s0>l1"))
    assert parts["l0->s1"] == parts["s1->l0"] == parts["s0->l1"] == 1.0


def test_without_a_declaration_addresses_name_the_links() -> None:
    assert Wiring().traced("a/0", "b/0", ("x", None, "y")) == {"->y": 1.0}


def test_odd_declarations_are_tolerated() -> None:
    odd = Wiring.of({"links": [{}, {"a": {"node": "l0"}}, {"a": {"node": "l0"}, "b": {"node": "s0"}}], "nics": [{}]})
    assert odd.leaf == {} and odd.cables == {"l0": {"s0"}, "s0": {"l0"}}
