"""Which hosts are near each other, by declared cabling or by measured round trips; as text and for Slurm."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from sdfstream.board.board import Board
from sdfstream.board.topology_text import hostlist, slurm_of, text_of
from sdfstream.board.topology_view import topology_view
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import TOPOLOGY
from tests.fixtures import board_messages as bm

NOW = bm.NOW_NS
HOP_NS = 4_000.0
CABLING = {
    "nodes": [{"id": name, "kind": kind} for name, kind in (
        *((f"h{i}", "host") for i in range(4)), *((f"l{i}", "leaf") for i in range(4)), ("s0", "spine"),
    )],
    "nics": [{"id": f"h{i}/r{r}", "rail": r} for i in range(4) for r in range(2)],
    "links": [
        {"id": f"{a}--{b}", "a": {"node": a}, "b": {"node": b}, "speed_mbps": 100_000}
        for a, b in (
            *((f"h{i}/r{r}", f"l{2 * (i // 2) + r}") for i in range(4) for r in range(2)),
            *((f"l{i}", "s0") for i in range(4)),
        )
    ],
}  # fmt: skip
"""Two pods of two rails: h0 and h1 on l0 and l1, h2 and h3 on l2 and l3."""


def declared(cabling: dict[str, Any] = CABLING) -> Message:
    return bm.message(TOPOLOGY, Event(DECLARED_TYPE, "lab", "d1", NOW, cabling), key="declared")


def delays(leaf: list[int], clock_ns: float = 1e6, share: float = 1.0) -> Message:
    """Pairs of NICs h0/r0, h1/r0, …; each way a share of each NIC, two hops more between leaves, and two clocks."""
    rng = np.random.default_rng(3)
    own, offset = rng.uniform(5e3, 2e4, len(leaf)), rng.uniform(-clock_ns, clock_ns, len(leaf))
    rows = []
    for a, b in itertools.permutations(range(len(leaf)), 2):
        if rng.random() > share:
            continue
        floor_ns = own[a] + own[b] + HOP_NS * (leaf[a] != leaf[b])
        for way, sign in (("fwd", 1.0), ("rev", -1.0)):
            queue_ns = float(rng.exponential(3e4))
            delay_ns = floor_ns + sign * (offset[b] - offset[a]) + queue_ns
            one = {"src": f"h{a}/r0", "dst": f"h{b}/r0", "dir": way}
            rows.append({**one, "owd_p50_ns": delay_ns, "excess_p50_ns": queue_ns})
    return bm.owd(rows)


def view(*messages: Message) -> dict[str, Any]:
    board = Board()
    board.take(messages)
    assert board.counters.as_dict() == {}
    return topology_view(board, NOW)


def test_hosts_on_the_same_leaves_are_a_group_by_declared_cabling() -> None:
    seen = view(declared(), delays([0, 1, 0, 1, 2, 2]))
    assert seen["by"] == "declared"
    assert seen["groups"] == [
        {"name": "group0", "hosts": ["h0", "h1"], "switches": ["l0", "l1"]},
        {"name": "group1", "hosts": ["h2", "h3"], "switches": ["l2", "l3"]},
    ]
    assert seen["unplaced"] == []
    assert len(seen["links"]) == 12
    assert seen["nics"][0] == {"nic": "h0/r0", "rail": "0", "leaf": "l0"}


def test_a_host_with_a_nic_that_no_link_leads_to_is_not_placed() -> None:
    links = [link for link in CABLING["links"] if link["id"] != "h2/r1--l3"]
    seen = view(declared({**CABLING, "links": links}))
    assert [group["hosts"] for group in seen["groups"]] == [["h0", "h1"], ["h3"]]
    assert seen["unplaced"] == ["h2"]


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_without_cabling_the_least_round_trips_tell_whatever_the_clocks_say(share: float) -> None:
    leaf = [0, 1, 2, 0, 1, 2, 0, 1, 2]
    seen = view(delays(leaf, share=share))
    assert seen["by"] == "measured"
    assert [group["hosts"] for group in seen["groups"]] == [["h0", "h3", "h6"], ["h1", "h4", "h7"], ["h2", "h5", "h8"]]


def test_where_nothing_stands_out_there_are_no_groups() -> None:
    assert view()["groups"] == []
    seen = view(delays([0] * 8))
    assert seen["groups"] == []
    assert seen["unplaced"] == [f"h{i}" for i in range(8)]


def test_for_people() -> None:
    lines = text_of(view(declared())).splitlines()
    assert lines[0].split(maxsplit=1)[1] == "4 hosts, 4 leaves, 1 spine; 8 NICs, 12 links at 100 Gbit/s"
    assert lines[1].endswith("2 groups, by declared cabling")
    assert lines[2].split(maxsplit=1) == ["group0", "h[0-1], over l0 and l1"]


def test_for_slurm() -> None:
    seen = view(declared())
    assert slurm_of(seen).splitlines()[1:] == [
        "SwitchName=group0 Nodes=h[0-1] # l0, l1",
        "SwitchName=group1 Nodes=h[2-3] # l2, l3",
        "SwitchName=fabric Switches=group[0-1]",
    ]
    hostile = {**seen, "groups": [{**seen["groups"][0], "hosts": ["h0", "h1 Nodes=ALL\nSwitchName=x"]}]}
    assert slurm_of(hostile).splitlines()[1] == "SwitchName=group0 Nodes=h0 # l0, l1"
    assert "\nSwitchName=x" not in slurm_of(hostile)


@pytest.mark.parametrize(
    ("names", "written"),
    [
        ([], ""),
        (["h7"], "h7"),
        (["h9", "h10", "h11"], "h9,h[10-11]"),
        (["h09", "h10", "h11"], "h[09-11]"),
        (["a-01", "a-02", "login", "a-05"], "a-[01-02,05],login"),
    ],
)
def test_host_lists(names: list[str], written: str) -> None:
    assert hostlist(names) == written
