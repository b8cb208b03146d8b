"""The declared graph: whose address is whose, and every shortest way from one NIC to another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.records.fabric import direction_id

_MOST_MET: Final = 100_000


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
    met: dict[str, None] = field(default_factory=dict)
    """Addresses that answered as hops while nothing was declared; at most `_MOST_MET`."""
    _quarters: int = 0
    """How many of them are the first or last of four, as no end of a /30 is."""

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

    # -- addresses alone ----------------------------------------------------------------------------------------

    def meet(self, hops: Iterable[str | None]) -> None:
        """Remember addresses that answered, so that the two ends of a cable can be told by their common subnet."""
        if self.leaf:
            return
        for hop in hops:
            if hop is not None and hop not in self.met and len(self.met) < _MOST_MET:
                self.met[hop] = None
                self._quarters += _number(hop)[1] % 4 in (0, 3)

    def partner(self, hop: str) -> str | None:
        """The other end of the cable that `hop` ends: of its /31 (IPv6: /127), or of its /30 where those are in use."""
        prefix, number = _number(hop)
        if number < 0:
            return None
        other = _address(prefix, number ^ 1)
        if other in self.met:
            return other
        other = _address(prefix, number ^ 3)
        return other if not self._quarters and len(self.met) > 3 and other in self.met else None

    def router(self, hop: str) -> str:
        """The node whose interface this is; its own address where that is not declared."""
        known = self._arrives.get(hop)
        return hop if known is None else known[1]

    def arrival(self, hop: str | None) -> tuple[str, str] | None:
        """(neighbour, node): a packet that meets this address came from the one to the other; None: not declared."""
        return None if hop is None else self._arrives.get(hop)

    def crossed_by(self, hop: str | None) -> str | None:
        """Name of the link direction that a packet has just crossed when it meets this address."""
        known = self.arrival(hop)
        if hop is None:
            return None
        return f"->{hop}" if known is None else direction_id(*known)

    # -- ways ---------------------------------------------------------------------------------------------------

    @property
    def leaves(self) -> set[str]:
        """Switches that NICs hang on."""
        return set(self.leaf.values())

    def traced(self, sender: str, receiver: str, hops: tuple[str | None, ...]) -> dict[str, float]:
        """Parts between the two NICs' cables on a traced path, with the probability of each.

        The first hop's link is the sender's own cable and belongs to its NIC; an answer from the receiver itself is
        the receiver's cable. Without a declaration a hop is known by its address alone. With one, a hop that did
        not answer is narrowed down to the ways that the others leave open.
        """
        if not self.leaf:
            return {f"->{address}": 1.0 for address in hops[1:] if address is not None}
        ways = self._ways(sender, receiver, hops)
        if ways:
            return ways
        parts: dict[str, float] = {}
        for origin, node in (self._arrives[h] for h in hops if h is not None and h in self._arrives):
            if node not in (sender, receiver):
                parts[f"node {node}"] = 1.0
                if origin != sender and origin not in self.leaf:
                    parts[direction_id(origin, node)] = 1.0
        return parts

    def _ways(self, sender: str, receiver: str, hops: tuple[str | None, ...]) -> dict[str, float]:
        """Shares of all shortest ways of the traced length that agree with the hops that answered; {} if none does."""
        first, last = self.leaf.get(sender), self.leaf.get(receiver)
        known = [self._arrives.get(h) if h is not None else None for h in hops]
        if known and known[-1] is not None and known[-1][1] == receiver:
            known.pop()
        if first is None or last is None or not known:
            return {}
        far = self._distances(last)
        if far.get(first) != len(known) - 1:
            return {}
        layers: list[dict[str, int]] = [{first: 1}]
        links: list[list[tuple[str, str]]] = []
        for i in range(1, len(known)):
            step = [(a, b) for a in layers[-1] for b in self._near.get(a, ()) if far.get(b) == len(known) - 1 - i]
            step = [(a, b) for a, b in step if known[i] in (None, (a, b))]
            layers.append({})
            for a, b in step:
                layers[-1][b] = layers[-1].get(b, 0) + layers[-2][a]
            links.append(step)
        if (known[0] is not None and known[0][1] != first) or not layers[-1]:
            return {}
        return _shares(layers, links, last)

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


def _number(address: str) -> tuple[str, int]:
    """Everything before the last group of an IP address, and that group as a number (−1: none)."""
    colon = ":" in address
    prefix, dot, last = address.rpartition(":" if colon else ".")
    try:
        return prefix + dot, int(last or "0", 16 if colon else 10)
    except ValueError:
        return address, -1


def _address(prefix: str, number: int) -> str:
    if ":" not in prefix:
        return f"{prefix}{number}"
    return prefix if number == 0 and prefix.endswith("::") else f"{prefix}{number:x}"


def _shares(layers: list[dict[str, int]], links: list[list[tuple[str, str]]], last: str) -> dict[str, float]:
    """Share of ways through every node and link; `layers` hold the ways that lead to each node from the start."""
    total = layers[-1][last]
    onward = {last: 1}
    parts = {f"node {last}": 1.0}
    for ways, step in zip(reversed(layers[:-1]), reversed(links), strict=True):
        before: dict[str, int] = {}
        for a, b in step:
            if b in onward:
                parts[direction_id(a, b)] = ways[a] * onward[b] / total
                before[a] = before.get(a, 0) + onward[b]
        parts |= {f"node {a}": ways[a] * n / total for a, n in before.items()}
        onward = before
    return parts
