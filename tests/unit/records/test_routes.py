"""What a path crosses, from declared cabling and from traces with gaps."""

import pytest

from sdfstream.records.fabric import Topology
from sdfstream.records.routes import equal_cost, traced

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
    assert equal_cost(FABRIC, "h0/r0", "h2/r0") == {
        "node l0": 1.0,
        "l0->s0": 0.5,
        "l0->s1": 0.5,
        "node s0": 0.5,
        "node s1": 0.5,
        "s0->l1": 0.5,
        "s1->l1": 0.5,
        "node l1": 1.0,
    }
    assert equal_cost(FABRIC, "h0/r0", "h1/r0") == {"node l0": 1.0}
    assert equal_cost(FABRIC, "h0/r0", "h9/r0") == {}


FULL = ("h0.r0>l0", "l0>s1", "s1>l1")
CERTAIN = {"node l0": 1.0, "l0->s1": 1.0, "node s1": 1.0, "s1->l1": 1.0, "node l1": 1.0}


@pytest.mark.parametrize(
    "hops",
    [FULL, (None, *FULL[1:]), (*FULL[:2], None), (None, None, FULL[2]), (None, FULL[1], None), (*FULL, "l1>h2.r0")],
)
def test_a_gap_follows_from_the_hops_that_answered(hops: tuple[str | None, ...]) -> None:
    assert traced(FABRIC, "h0/r0", "h2/r0", hops) == CERTAIN


def test_a_gap_that_does_not_follow_is_shared_out() -> None:
    assert traced(FABRIC, "h0/r0", "h2/r0", (FULL[0], None, None)) == equal_cost(FABRIC, "h0/r0", "h2/r0")


def test_a_route_that_is_not_declared_has_only_what_answered() -> None:
    elements = traced(FABRIC, "h0/r0", "h2/r0", (FULL[0], "l0>s1", "s1>l0", "l0>s0", "s0>l1"))
    assert elements["l0->s1"] == elements["s1->l0"] == elements["s0->l1"] == 1.0


def test_without_a_declaration_addresses_name_the_links() -> None:
    assert traced(Topology(), "a/0", "b/0", ("x", None, "y")) == {"->y": 1.0}
