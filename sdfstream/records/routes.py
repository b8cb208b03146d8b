"""Which elements routes cross: of a traced route, and of equal-cost routes where nothing is traced.

Elements are named as findings name them: ``node s1`` a switch, ``l0->s1`` one direction of a link. Routers split flows
equally over equal-cost next hops (ECMP, RFC 2992), so over many flows the share of routes is the share of flows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from sdfstream.records.fabric import Topology, direction_id


def traced(topology: Topology, sender: str, receiver: str, hops: Sequence[str | None]) -> dict[str, float]:
    """Elements between the two NICs' cables on a traced route, with the probability of each.

    The first hop's link is the sender's own cable and belongs to its NIC; an answer from the receiver itself is
    the receiver's cable. Without a declaration a hop is known by its address alone. With one, a hop that did
    not answer is narrowed down to the shortest routes that agree with the others.
    """
    if not topology.leaf_of:
        return {f"->{address}": 1.0 for address in hops[1:] if address is not None}
    arrivals = [topology.arrival(hop) for hop in hops]
    found = _agreeing_between(topology, sender, receiver, arrivals)
    if found:
        return found
    elements: dict[str, float] = {}
    for origin, node in (a for a in arrivals if a is not None):
        if node not in (sender, receiver):
            elements[f"node {node}"] = 1.0
            if origin != sender and origin not in topology.leaf_of:
                elements[direction_id(origin, node)] = 1.0
    return elements


def _agreeing_between(
    topology: Topology, sender: str, receiver: str, arrivals: Sequence[tuple[str, str] | None]
) -> dict[str, float]:
    """Shares of all shortest routes that agree with the hops that answered; {} if none does."""
    first, last = topology.leaf_of.get(sender), topology.leaf_of.get(receiver)
    if arrivals and arrivals[-1] is not None and arrivals[-1][1] == receiver:
        arrivals = arrivals[:-1]
    if first is None or last is None or not arrivals:
        return {}
    return _agreeing(topology.graph, first, last, arrivals)


def equal_cost(topology: Topology, sender: str, receiver: str) -> dict[str, float]:
    """Elements between two NICs with the share of equal-cost routes that use them; empty when not declared."""
    a, b = topology.leaf_of.get(sender), topology.leaf_of.get(receiver)
    if a is None or b is None:
        return {}
    if (a, b) not in topology.shares:
        topology.shares[a, b] = split_evenly(topology.graph, a, b)
    return topology.shares[a, b]


def distances(graph: Mapping[str, Sequence[str]], goal: str) -> dict[str, int]:
    """Links on a shortest route from each switch to `goal`; a switch that cannot reach it is absent.

    >>> distances({"l0": ["s0"], "s0": ["l0", "l1"], "l1": ["s0"]}, "l1")
    {'l1': 0, 's0': 1, 'l0': 2}
    """
    found = {goal: 0}
    queue = deque([goal])
    while queue:
        node = queue.popleft()
        for n in graph.get(node, ()):
            if n not in found:
                found[n] = found[node] + 1
                queue.append(n)
    return found


def split_evenly(graph: Mapping[str, Sequence[str]], first: str, last: str) -> dict[str, float]:
    """Share of flows from `first` to `last` that cross each element, with an equal split at every node.

    >>> graph = {"l0": ["s0", "s1"], "s0": ["l0", "l1"], "s1": ["l0", "l1"], "l1": ["s0", "s1"]}
    >>> split_evenly(graph, "l0", "l1")["l0->s1"]
    0.5
    """
    far = distances(graph, last)
    if first not in far:
        return {f"node {first}": 1.0, f"node {last}": 1.0}
    share = {first: 1.0}
    elements: dict[str, float] = {}
    queue = deque([first])
    while queue:
        node = queue.popleft()
        elements[f"node {node}"] = min(1.0, share[node])
        nexts = [n for n in graph.get(node, ()) if far.get(n, -1) == far[node] - 1]
        for n in nexts:
            elements[direction_id(node, n)] = share[node] / len(nexts)
            if n not in share:
                queue.append(n)
                share[n] = 0.0
            share[n] += share[node] / len(nexts)
    return elements


def _agreeing(
    graph: Mapping[str, Sequence[str]], first: str, last: str, arrivals: Sequence[tuple[str, str] | None]
) -> dict[str, float]:
    """Share of the shortest routes from `first` to `last` that agree with a trace, by element; {} if none does.

    `arrivals` are the (neighbour, node) of the hops that answered, None of the others; the first is that of `first`.
    """
    far = distances(graph, last)
    if far.get(first) != len(arrivals) - 1:
        return {}
    layers: list[dict[str, int]] = [{first: 1}]
    links: list[list[tuple[str, str]]] = []
    for i in range(1, len(arrivals)):
        step = [(a, b) for a in layers[-1] for b in graph.get(a, ()) if far.get(b) == len(arrivals) - 1 - i]
        step = [(a, b) for a, b in step if arrivals[i] in (None, (a, b))]
        layers.append({})
        for a, b in step:
            layers[-1][b] = layers[-1].get(b, 0) + layers[-2][a]
        links.append(step)
    start = arrivals[0]
    if (start is not None and start[1] != first) or not layers[-1]:
        return {}
    return _shares(layers, links, last)


def _shares(layers: list[dict[str, int]], links: list[list[tuple[str, str]]], last: str) -> dict[str, float]:
    """Share of routes through every node and link; `layers` hold the number of routes from the start to each node."""
    total = layers[-1][last]
    onward = {last: 1}
    elements = {f"node {last}": 1.0}
    for count, step in zip(reversed(layers[:-1]), reversed(links), strict=True):
        before: dict[str, int] = {}
        for a, b in step:
            if b in onward:
                elements[direction_id(a, b)] = count[a] * onward[b] / total
                before[a] = before.get(a, 0) + onward[b]
        elements |= {f"node {a}": count[a] * n / total for a, n in before.items()}
        onward = before
    return elements
