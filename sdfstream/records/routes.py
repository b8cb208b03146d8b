"""Shortest routes between two switches of a declared graph, and the share of them that crosses each element.

Elements are named as findings name them: ``node s1`` a switch, ``l0->s1`` one direction of a link. Routers split flows
equally over equal-cost next hops (ECMP, RFC 2992), so over many flows the share of routes is the share of flows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from sdfstream.records.fabric import direction_id

Graph = dict[str, list[str]]
"""Switch to neighbouring switches, sorted; parallel cables stand twice."""


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


def equal_cost(graph: Mapping[str, Sequence[str]], first: str, last: str) -> dict[str, float]:
    """Share of flows from `first` to `last` that cross each element, with an equal split at every node.

    >>> graph = {"l0": ["s0", "s1"], "s0": ["l0", "l1"], "s1": ["l0", "l1"], "l1": ["s0", "s1"]}
    >>> equal_cost(graph, "l0", "l1")["l0->s1"]
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


def agreeing(
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
