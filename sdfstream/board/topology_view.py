"""The fabric as plain JSON: what is declared of it, and which hosts are near each other."""

from __future__ import annotations

from typing import Any

from sdfstream.board.board import Board
from sdfstream.board.proximity import proximity_of


def topology_view(board: Board, now_ns: int) -> dict[str, Any]:
    """Nodes, NICs and links as declared; groups of hosts by `proximity`, numbered in order of their names."""
    topology = board.fabric.topology
    near = proximity_of(topology, board.paths.figures(), now_ns)
    width = len(str(max(0, len(near.groups) - 1)))
    return {
        "at_ns": now_ns,
        "by": near.by,
        "groups": [
            {"name": f"group{at:0{width}d}", "hosts": list(group.hosts), "switches": list(group.switches)}
            for at, group in enumerate(near.groups)
        ],
        "unplaced": list(near.unplaced),
        "nodes": [{"node": node, "kind": kind} for node, kind in sorted(topology.kinds.items())],
        "nics": [
            {"nic": nic, "rail": topology.rail(nic), "leaf": topology.leaf_of.get(nic)} for nic in sorted(topology.nics)
        ],
        "links": [
            {"link": link.id or "--".join(end.node for end in link.ends), "speed_bps": link.speed_bps or None}
            for link in topology.links
        ],
    }
