"""Queues where the traffic of what is dead goes now."""

import pytest

from sdfstream.detect.root.displaced import is_displaced
from sdfstream.records.fabric import Topology

S = 1_000_000_000
PAIRS = [(f"l{leaf}", f"s{spine}") for leaf in range(3) for spine in range(3)]
HOSTS = [(f"h{leaf}/r0", f"l{leaf}") for leaf in range(3)]
MAP = Topology(
    {
        "nics": [{"id": nic} for nic, _ in HOSTS],
        "links": [{"id": f"{a}--{b}", "a": {"node": a}, "b": {"node": b}} for a, b in (*PAIRS, *HOSTS)],
    }
)


@pytest.mark.parametrize(
    ("direction", "dead", "displaced"),
    [
        ("l0->s0", "l0--s2", True),  # another uplink of the leaf
        ("s0->l0", "l0--s2", True),  # and the way back
        ("l1->s2", "l0--s2", False),  # the spine has less to carry, not more
        ("s2->l0", "l0--s2", False),  # the dead link itself
        ("l0->h0/r0", "l0--s2", False),  # a NIC gets no more than before
        ("l1->s0", "s2", True),  # all leaves miss a spine
        ("s0->l1", "l0", False),  # what a dead leaf carried is gone
    ],
)
def test_where_traffic_of_the_dead_goes(direction: str, dead: str, displaced: bool) -> None:
    assert is_displaced((direction,), {dead}, MAP, S) == displaced
    assert not is_displaced((direction,), {dead}, MAP, 60 * S)
    assert not is_displaced((direction,), (), MAP, S)


@pytest.mark.parametrize(("direction", "displaced"), [("~leaf(h0:r0)->~core", False), ("~leaf(h1:r0)->~core", False)])
def test_what_no_map_names_is_the_same_link_or_another_leaf(direction: str, displaced: bool) -> None:
    assert is_displaced((direction,), {"~core--~leaf(h0:r0)"}, Topology(), S) == displaced
