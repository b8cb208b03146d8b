"""The fabric as declared and traced, and the state of each direction of its links. Sans-IO, bounded.

A direction is healthy only while a path that is known to cross it is measured and nothing is found about it; where no
measured path crosses it its state is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sdfstream.board.paths import STALE_NS, PathTable
from sdfstream.records.fabric import DECLARED_TYPE, PATH_TYPE, PathId, Topology, direction_id
from sdfstream.records.message import Event
from sdfstream.records.routes import traced
from sdfstream.stats import Counters

MOST_ROUTES: Final = 300_000
_LIKELY: Final = 0.3
"""A suspect less likely than this does not make a link unhealthy."""
_CROSSED: Final = 0.5
"""Share of the routes that agree with a trace from which on a path counts as crossing a link."""

Findings = Sequence[Mapping[str, Any]]


class FabricBoard:
    """Declared cabling, the last traced route of every path, and what crosses what."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.topology = Topology()
        self._routes: dict[PathId, dict[str, Any]] = {}
        """Path → its last traced route, as stated; the newest last."""
        self._crossing: dict[str, set[PathId]] = {}
        """Link direction → the paths that cross it."""
        self._elements: dict[PathId, tuple[str, ...]] = {}

    def take(self, event: Event) -> None:
        """Take an event of the topology topic; one that cannot be read raises FormatError or what its fields give."""
        if event.type == PATH_TYPE:
            self._take_route(dict(event.data))
        elif event.type == DECLARED_TYPE or "links" in event.data:
            self.topology = Topology(event.data)
            routes, self._routes = self._routes, {}
            self._crossing, self._elements = {}, {}
            for route in routes.values():
                self._take_route(route)

    def links(
        self, now_ns: int, paths: PathTable, nics: Mapping[str, Mapping[str, Any]], findings: Findings
    ) -> list[dict[str, Any]]:
        """Every declared link with its two directions, in order of their ids.

        Parameters
        ----------
        now_ns : int, bus time
        paths : PathTable
            What is measured now.
        nics : mapping of NIC id to its view
            Of `Board`: what a NIC's own cable is judged by.
        findings : sequence
            Open ones.
        """
        blamed = _blamed(findings)
        found = []
        for link in self.topology.links:
            a, b = (end.node for end in link.ends)
            directions = [self._direction(x, y, now_ns, paths, nics, blamed) for x, y in ((a, b), (b, a))]
            name = link.id or f"{a}--{b}"
            about = sorted(blamed.get(name, set()).union(*(set(d["findings"]) for d in directions)))
            found.append(
                {
                    "link": name,
                    "a": a,
                    "b": b,
                    "speed_bps": link.speed_bps or None,
                    "state": "unhealthy" if blamed.get(name) else _worse(*(str(d["state"]) for d in directions)),
                    "directions": directions,
                    "findings": about,
                }
            )
        return sorted(found, key=lambda link: str(link["link"]))

    def items(self) -> Iterator[dict[str, Any]]:
        """Nodes and NICs as declared, then routes as traced."""
        for node, kind in self.topology.kinds.items():
            yield {"id": f"node {node}", "type": "node", "node": node, "kind": kind}
        for nic, declared in self.topology.nics.items():
            leaf = self.topology.leaf_of.get(nic)
            yield {"id": f"nic {nic}", "type": "nic", "nic": nic, "rail": self.topology.rail(nic), "leaf": leaf} | (
                {} if declared.link is None else {"link": declared.link}
            )
        for path, route in self._routes.items():
            yield {
                "id": f"route {path}",
                "type": "route",
                "path": str(path),
                "hops": [self.topology.router(str(hop)) if hop is not None else None for hop in route["hops"]],
                "complete": bool(route.get("complete")),
                "traced_at_ns": route.get("traced_at_ns"),
            }

    def _take_route(self, data: dict[str, Any]) -> None:
        path = PathId(
            str(data["src"]), str(data["dst"]), str(data["transport"]), int(data["path"]), int(data["dscp"]),
            str(data["dir"]),
        )  # fmt: skip
        hops = [None if hop is None else str(hop) for hop in data["hops"]]
        self._forget(path)
        sender, receiver = (path.src, path.dst) if path.dir == "fwd" else (path.dst, path.src)
        crossed = traced(self.topology, sender, receiver, hops)
        elements = tuple(name for name, share in crossed.items() if "->" in name and share >= _CROSSED)
        self._routes[path], self._elements[path] = data, elements
        for element in elements:
            self._crossing.setdefault(element, set()).add(path)
        while len(self._routes) > MOST_ROUTES:
            self._forget(next(iter(self._routes)))
            self._counters.add("shed", "routes")

    def _forget(self, path: PathId) -> None:
        self._routes.pop(path, None)
        for element in self._elements.pop(path, ()):
            self._crossing[element].discard(path)

    def _direction(
        self,
        origin: str,
        far: str,
        now_ns: int,
        paths: PathTable,
        nics: Mapping[str, Mapping[str, Any]],
        blamed: Mapping[str, set[str]],
    ) -> dict[str, Any]:
        name = direction_id(origin, far)
        about = sorted(blamed.get(name, ()))
        said = {"direction": name, "findings": about}
        if origin in self.topology.nics or far in self.topology.nics:
            nic, side = (origin, "tx") if origin in self.topology.nics else (far, "rx")
            state = str(nics.get(nic, {}).get(side, "unknown"))
            return said | {"state": "unhealthy" if about else state, "paths": None, "paths_measured": None}
        crossing = self._crossing.get(name, set())
        measured = sum(now_ns - at_ns <= STALE_NS for path in crossing if (at_ns := paths.seen_at_ns(path)) is not None)
        state = "unhealthy" if about else "healthy" if measured else "unknown"
        return said | {"state": state, "paths": len(crossing), "paths_measured": measured}


def _blamed(findings: Findings) -> dict[str, set[str]]:
    """Findings' ids by the names of what they blame: subject, and suspects that are likely."""
    blamed: dict[str, set[str]] = {}
    for finding in findings:
        likely = [s for s in finding.get("suspects") or () if float(s.get("probability", 0)) >= _LIKELY]
        for name in {str((finding.get("subject") or {}).get("id")), *(str(s.get("id")) for s in likely)}:
            blamed.setdefault(name, set()).add(str(finding["id"]))
    return blamed


def _worse(*states: str) -> str:
    return next(state for state in ("unhealthy", "unknown", "absent", "healthy") if state in states)
