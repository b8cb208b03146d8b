"""The declared graph: whose address is whose, and every shortest way from one NIC to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sdfstream.records.fabric import direction_id


@dataclass(slots=True)
class Wiring:
    """Cabling as declared on ``sdf.state.topology.v1``; empty when nothing was declared."""

    declared: dict[str, Any] = field(default_factory=dict)
    """What was declared, as it came."""
    leaf: dict[str, str] = field(default_factory=dict)
    """NIC id to the switch its cable leads to."""
    cables: dict[str, set[str]] = field(default_factory=dict)
    """Switch to all neighbours, NICs among them."""
    _arrives: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Interface address to (neighbour, node): a packet that meets this address came from there."""
    _near: dict[str, list[str]] = field(default_factory=dict)
    """Switch to neighbouring switches, sorted."""
    _spread: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Wiring:
        """Read a declaration; links that lack an end are passed over (the declaration is checked by its author)."""
        self = cls(declared=dict(data))
        nics = {str(n["id"]) for n in data.get("nics", ()) if "id" in n}
        for link in data.get("links", ()):
            a, b = link.get("a", {}), link.get("b", {})
            x, y = a.get("node"), b.get("node")
            if not x or not y:
                continue
            self._join(str(x), str(y), nics)
            self._join(str(y), str(x), nics)
            for end, node, other in ((a, x, y), (b, y, x)):
                if end.get("address"):
                    self._arrives[str(end["address"]).partition("/")[0]] = (str(other), str(node))
        self._near = {node: sorted(near) for node, near in self._near.items()}
        return self

    def _join(self, node: str, other: str, nics: set[str]) -> None:
        if node in nics:
            self.leaf[node] = other
            return
        self.cables.setdefault(node, set()).add(other)
        if other not in nics:
            self._near.setdefault(node, []).append(other)

    def traced(self, sender: str, receiver: str, hops: list[str | None]) -> dict[str, float]:
        """Parts between the two NICs' cables on a traced path, each certain (weight 1).

        The first hop's link is the sender's own cable and belongs to its NIC; an answer from the receiver itself is
        the receiver's cable. A hop that did not answer leaves a gap: what lies there is not claimed.
        """
        parts: dict[str, float] = {}
        for i, address in enumerate(hops):
            if address is None:
                continue
            known = self._arrives.get(address)
            if known is None:
                if i > 0 and not self.leaf:
                    parts[f"->{address}"] = 1.0
                continue
            origin, node = known
            if node in (sender, receiver):
                continue
            parts[f"node {node}"] = 1.0
            if origin != sender and origin not in self.leaf:
                parts[direction_id(origin, node)] = 1.0
        return parts

    def spread(self, sender: str, receiver: str) -> dict[str, float]:
        """Parts between two NICs with the share of equal-cost ways that use them; empty when not declared."""
        a, b = self.leaf.get(sender), self.leaf.get(receiver)
        if a is None or b is None:
            return {}
        if (a, b) not in self._spread:
            self._spread[a, b] = self._shares(a, b)
        return self._spread[a, b]

    def _shares(self, a: str, b: str) -> dict[str, float]:
        far = self._distances(b)
        if a not in far:
            return {f"node {a}": 1.0, f"node {b}": 1.0}
        share = {a: 1.0}
        parts: dict[str, float] = {}
        queue = deque([a])
        while queue:
            node = queue.popleft()
            parts[f"node {node}"] = min(1.0, share[node])
            nexts = [n for n in self._near.get(node, ()) if far.get(n, -1) == far[node] - 1]
            for n in nexts:
                parts[direction_id(node, n)] = share[node] / len(nexts)
                if n not in share:
                    queue.append(n)
                    share[n] = 0.0
                share[n] += share[node] / len(nexts)
        return parts

    def _distances(self, goal: str) -> dict[str, int]:
        far = {goal: 0}
        queue = deque([goal])
        while queue:
            node = queue.popleft()
            for n in self._near.get(node, ()):
                if n not in far:
                    far[n] = far[node] + 1
                    queue.append(n)
        return far
