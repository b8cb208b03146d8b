"""Routes of flows: which elements of the fabric the traffic of a job crosses, direction by direction.

A flow is traced as itself (`records.fabric`), so its route is known for certain where every router answered. Of a flow
that was not traced, or not whole, the declared graph gives the links it *may* cross, and with what probability;
without a declaration nothing but its two NICs is known, and it may cross anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.routes import Hops, TracedRoute
from sdfstream.records.fabric import Flow
from sdfstream.stats import Counters

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_FLOWS: Final = 400_000
_SURE: Final = 0.99


class Flows:
    """Parts crossed by each flow, under dense numbers; `element` and `weight` are (flows, width), padded with −1."""

    def __init__(self, cabling: Cabling, counters: Counters, most: int = MOST_FLOWS) -> None:
        self.cabling, self.counters, self.most = cabling, counters, most
        self.numbers: dict[Flow, int] = {}
        self._routes: dict[Flow, TracedRoute] = {}
        self.element = np.full((0, 8), -1, np.int64)
        self.weight = np.zeros((0, 8))
        self.open = np.zeros(0, np.bool_)
        """(flows,) nothing is known of the route but its two NICs: it may cross any link."""
        self._known = (-1, -1)
        self.version = 0
        """Goes up with every change of any route."""

    def take(self, flow: Flow, hops: Hops, at_ns: int) -> None:
        """Take a trace of a flow, bus time `at_ns`; one that says what is known already changes nothing."""
        known = self._routes.get(flow)
        if known is None:
            if len(self._routes) >= self.most:
                self.counters.add("shed", "flows-full")
                return
            self._routes[flow] = TracedRoute(hops, at_ns)
        else:
            before = known.hops
            doubt = known.doubted(self.cabling.moves, self.cabling.topology.router)
            self.cabling.heed(known, known.take(hops, at_ns), doubt or at_ns)
            if (known.hops, known.doubt_ns) == (before, doubt):
                return
        self.cabling.note_hops(hops)
        if flow in self.numbers:
            self._write(self.numbers[flow], flow)
            self.version += 1

    def drop_unused(self, before_ns: int) -> int:
        """Forget flows that nobody uses and that were last traced before `before_ns`; how many."""
        old = [flow for flow, route in self._routes.items() if route.traced_ns < before_ns and flow not in self.numbers]
        for flow in old:
            del self._routes[flow]
        return len(old)

    def route(self, flow: Flow) -> TracedRoute | None:
        """What is known of a flow's route."""
        return self._routes.get(flow)

    def use(self, flows: list[Flow]) -> Ints:
        """Number these flows, and no others, from now on; (n,) their numbers, equal flows alike."""
        self.numbers = {flow: i for i, flow in enumerate(dict.fromkeys(flows))}
        n = len(self.numbers)
        self.element, self.weight = (
            np.full((n, self.element.shape[1]), -1, np.int64),
            np.zeros((n, self.element.shape[1])),
        )
        self.open = np.zeros(n, np.bool_)
        self._know()
        for flow, number in self.numbers.items():
            self._write(number, flow)
        self.version += 1
        return np.array([self.numbers[flow] for flow in flows], np.int64)

    def _know(self) -> None:
        """Bring the doubts about all routes up to date."""
        if self._known[1] != self.cabling.moved:
            for route in self._routes.values():
                route.unsettled_by(self.cabling.moves, self.cabling.topology.router)
        self._known = (self.cabling.declared, self.cabling.moved)

    def refresh(self) -> None:
        """Work all routes out anew when the cabling was declared anew, or a router moved flows."""
        if self._known != (self.cabling.declared, self.cabling.moved):
            self._know()
            for flow, number in self.numbers.items():
                self._write(number, flow)
            self.version += 1

    def _write(self, number: int, flow: Flow) -> None:
        crossed, certain = self.cabling.route(flow.src, flow.dst, self._routes.get(flow))
        width = self.element.shape[1]
        if len(crossed) > width:
            pad = max(len(crossed), 2 * width) - width
            self.element = np.pad(self.element, ((0, 0), (0, pad)), constant_values=-1)
            self.weight = np.pad(self.weight, ((0, 0), (0, pad)))
        self.element[number] = -1
        self.element[number, : len(crossed)] = list(crossed)
        self.weight[number, : len(crossed)] = list(crossed.values())
        self.open[number] = not certain

    def crossing(self, elements: Iterable[int]) -> tuple[Bools, Bools]:
        """(flows,) which surely cross one of these elements, and which may."""
        hit = np.isin(self.element, list(elements)) & (self.element >= 0)
        weight = np.where(hit, self.weight, 0.0).max(axis=1, initial=0.0)
        return weight > _SURE, weight > 0.0

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values (numbers are given anew by `use`)."""
        return {"routes": [[*flow, route.snapshot()] for flow, route in self._routes.items()]}

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._routes = {Flow(*flow): TracedRoute(**route) for *flow, route in state["routes"]}
