"""States of links: never healthy without a measured path that is known to cross them."""

from __future__ import annotations

from typing import Any

from sdfstream.board.board import Board
from sdfstream.records import topics
from sdfstream.records.fabric import DECLARED_TYPE, PATH_TYPE, SILENT_TYPE
from sdfstream.records.message import Event
from tests.fixtures import board_messages as bm

KINDS = {"h00": "host", "h01": "host", "l0": "leaf", "l1": "leaf", "s0": "spine"}
CABLES = (("h00/r0", "10.0.0.1", "l0", "10.0.0.0"), ("h01/r0", "10.0.1.1", "l1", "10.0.1.0"),
          ("l0", "172.16.0.0", "s0", "172.16.0.1"), ("l1", "172.16.1.0", "s0", "172.16.1.1"))  # fmt: skip
DECLARED: dict[str, Any] = {
    "nodes": [{"id": node, "kind": kind} for node, kind in KINDS.items()],
    "nics": [{"id": "h00/r0", "link": "h00/r0--l0"}, {"id": "h01/r0", "link": "h01/r0--l1"}],
    "links": [
        {"id": f"{a}--{b}", "a": {"node": a, "address": near}, "b": {"node": b, "address": far}}
        for a, near, b, far in CABLES
    ],
}
ROUTE = {
    "src": "h00/r0", "dst": "h01/r0", "transport": "udp", "path": 50_001, "dscp": 46, "dir": "fwd",
    "hops": ["10.0.0.0", "172.16.0.1", "172.16.1.0"], "complete": True,
}  # fmt: skip


def of_type(kind: str, data: Any) -> Any:
    return bm.message(topics.TOPOLOGY, Event(kind, "test", "1", bm.NOW_NS, data))


def states(board: Board, now_ns: int = bm.NOW_NS) -> dict[str, str]:
    nics = {n["nic"]: n for n in board.nics(now_ns)}
    links = board.fabric.links(now_ns, board.paths, nics, board.findings(open_only=True))
    return {d["direction"]: d["state"] for link in links for d in link["directions"]}


def test_a_direction_is_healthy_only_while_a_path_across_it_is_measured() -> None:
    board = Board()
    board.take([of_type(DECLARED_TYPE, DECLARED)])
    assert set(states(board).values()) == {"unknown"}
    board.take([of_type(PATH_TYPE, ROUTE)])
    assert set(states(board).values()) == {"unknown"}, "traced, and not measured"
    board.take([bm.owd([{}]), bm.nic_state("h00/r0", "tx", "healthy")])
    found = states(board)
    assert {d for d, state in found.items() if state == "healthy"} == {"l0->s0", "s0->l1", "h00/r0->l0"}
    assert found["s0->l0"] == "unknown", "the way back was not traced"
    assert set(states(board, bm.NOW_NS + 6_000_000_000).values()) == {"unknown"}, "nothing is heard any more"
    silent = {name: value for name, value in ROUTE.items() if name != "complete"} | {"hops": ["10.0.0.0", None, None]}
    board.take([of_type(SILENT_TYPE, silent)])
    assert states(board) == found, "how far its packets got once it had fallen silent is no route"
    blames = bm.finding("f9", kind="congestion", subject=("link", "l0--s0"), suspects=(("l0->s0", 0.9),))
    board.take([bm.event(topics.FINDING, blames)])
    assert states(board)["l0->s0"] == "unhealthy"
    again = dict(DECLARED, links=DECLARED["links"][:3])
    board.take([of_type(DECLARED_TYPE, again)])
    assert "s0->l1" not in states(board), "a new declaration counts at once"


def test_a_route_that_cannot_be_read_is_counted() -> None:
    board = Board()
    board.take([of_type(PATH_TYPE, {"src": "h00/r0"})])
    assert any(name.startswith("board.refused.sdf.state.topology") for name in board.counters.as_dict())
