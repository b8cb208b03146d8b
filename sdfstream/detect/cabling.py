"""Which elements of the fabric a path crosses: by declared cabling, by traced hops, or not known.

An **element** is what can be at fault: a NIC's sending side (``tx h00/r0``) or receiving side (``rx h00/r0``), each
with the cable to its leaf; one direction of a fabric link (``l0->s1``, or ``->172.16.0.3`` when only the address of
its far end is known); a switch (``node s1``). What is known of a path decides how sharp its row is:

- traced: the hops, each crossed with certainty (a router answers with the address of the interface the packet came in
  by, so a hop's address names the link direction just crossed); what lies in a gap follows from the declared graph;
- traced, but a router on it has moved flows since (`routes`): half as traced, half any route that the graph allows;
- declared only: every shortest route through the declared graph, each link with the share of routes (equal split at
  every node, as ECMP does over many flows) that use it;
- neither: the two NICs' ends alone.

Evidence of an earlier instant is taken over the route that held then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from sdfstream.detect.inferred.floors import RoundTripFloors
from sdfstream.detect.inferred.groups import LeafGroups
from sdfstream.detect.routes import Hops, LinkEnds, SilentTraces, TracedLinks, TracedRoute, mixed, reach
from sdfstream.detect.sessions import NameIndex, Sessions
from sdfstream.records.fabric import Topology, link_id
from sdfstream.records.finding import Subject
from sdfstream.records.routes import equal_cost, traced
from sdfstream.records.units import NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

FWD, REV = 0, 1
_MAX_ELEMENTS = 1 << 20
_REFRESH = 64
_MOVES_NS = 600 * NS_PER_S
_DOUBT = 0.5
"""Share of flows that a router sends elsewhere when it loses or regains one of a few equal routes (measured: 0.51)."""


class Cabling:
    """Elements crossed by each session and direction, kept as padded arrays.

    `element` and `weight` have the shape (sessions, 2, width): element numbers (−1: no entry) and the probability that
    the path crosses them.
    """

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.elements = NameIndex(_MAX_ELEMENTS)
        self.topology = Topology()
        self.ends = LinkEnds()
        self.floors = RoundTripFloors(sessions)
        self._groups = LeafGroups(self.floors)
        self.declared = 0
        """Declarations taken so far."""
        self.element = np.full((0, 2, 4), -1, np.int64)
        self.weight = np.zeros((0, 2, 4))
        self.past_ns = np.zeros((0, 2), np.int64)
        """(sessions, 2) evidence from before this bus time is taken over an earlier route; 0: all over the present."""
        self.closed = np.zeros((0, 2), np.bool_)
        """(sessions, 2) the path can cross no other elements."""
        self.traced = TracedLinks()
        self.silent_traces = SilentTraces()
        self._routes: dict[tuple[int, int], TracedRoute] = {}
        self._stale: dict[int, None] = {}
        self.moves: dict[str, int] = {}
        """Routers that moved flows lately, with the bus time."""
        self.moved = 0
        """How often any did."""
        self._unsettled = 0

    def begin(self, tick: int) -> None:
        """Enter the 100 ms boundary number `tick`."""
        self._groups.begin(tick)
        self.refresh(_REFRESH)

    def note_new(self, slots: list[int]) -> None:
        """These sessions are new or took over a freed number."""
        have, want = self.element.shape[0], self.sessions.count
        if want > have:
            extra = max(want, 2 * have) - have
            self.element = np.concatenate([self.element, np.full((extra, *self.element.shape[1:]), -1, np.int64)])
            self.weight = np.concatenate([self.weight, np.zeros((extra, *self.weight.shape[1:]))])
            self.past_ns = np.concatenate([self.past_ns, np.zeros((extra, 2), np.int64)])
            self.closed = np.concatenate([self.closed, np.zeros((extra, 2), np.bool_)])
        self._stale.update(dict.fromkeys(slots))

    def declare(self, topology: Topology) -> None:
        """Take the declared cabling (``sdf.state.topology.declared.v1``); all paths are looked at anew."""
        self.topology = topology
        self.ends = LinkEnds()
        self.declared += 1
        self._stale = dict.fromkeys(np.flatnonzero(self.sessions.table["src"] >= 0).tolist())

    # -- traces ------------------------------------------------------------------------------------------------

    def trace(self, slot: int, direction: int, hops: Hops, at_ns: int) -> bool:
        """Take the traced hops of a path, bus time `at_ns`; True when the path has moved.

        A router that did not answer is a gap. A trace with gaps replaces a complete one only when it contradicts it.
        A path whose packets are sprayed does not move: each of its traces shows another of its ways.
        """
        self.note_hops(hops)
        dscp = int(self.sessions.table["dscp"][slot])
        if self.traced.take(self.topology, dscp, hops, at_ns):
            self._stale |= dict.fromkeys(np.flatnonzero(self.sessions.table["dscp"] == dscp).tolist())
        known = self._routes.get((slot, direction))
        self._stale[slot] = None
        if known is None or self.traced.is_sprayed(dscp):
            self._routes[slot, direction] = TracedRoute(hops, at_ns)
            return False
        since_ns = known.doubted(self.moves, self.topology.router) or at_ns
        first = known.take(hops, at_ns)
        self.heed(known, first, since_ns)
        return first is not None and not known.sprayed()

    def trace_silent(self, slot: int, hops: Hops, at_ns: int) -> None:
        """Take how far the packets of a path got after it had fallen silent; its route stays what it was."""
        self.traced.take(self.topology, int(self.sessions.table["dscp"][slot]), hops, at_ns)
        self.silent_traces.take(slot, hops, at_ns)

    def note_hops(self, hops: Hops) -> None:
        """Take hop addresses of any trace: without a declaration they show which two are ends of one link."""
        if not self.topology.leaf_of:
            self.ends.note(hops)

    def heed(self, route: TracedRoute, first: int | None, since_ns: int) -> None:
        """A route has moved from its hop `first` on (None: it has not): the router before it sends flows elsewhere."""
        if first:
            chose = [
                h[first - 1] for h in (route.hops, route.former or []) if first <= len(h) and h[first - 1] is not None
            ]
            if chose:
                self.note_moves(self.topology.router(str(chose[0])), since_ns)

    def note_moves(self, router: str, at_ns: int) -> None:
        """A router (node, or address where nothing is declared) sends flows elsewhere since `at_ns`."""
        if at_ns <= self.moves.get(router, 0):
            return
        self.moves = {r: t for r, t in self.moves.items() if at_ns - t < _MOVES_NS}
        self.moves[router] = at_ns
        self.moved += 1

    def moved_off(self, elements: list[int], works: tuple[Bools, Bools]) -> list[str]:
        """Routers that lead to these elements and by traces still sent working paths over them; forward, reverse."""
        n = self.sessions.count
        hit = (np.isin(self.element[:n], elements) & (self.weight[:n] > 0.99)).any(axis=2)
        routers: dict[str, None] = {}
        for slot, direction in np.argwhere(hit & np.stack(works, axis=1)).tolist():
            route = self._routes.get((slot, direction))
            if route is None or route.doubt_ns:
                continue
            names = [None if hop is None else self.topology.direction(hop) for hop in route.hops]
            routers |= {
                self.topology.router(before): None
                for before, name in zip(route.hops[:-1], names[1:], strict=True)
                if before is not None and name is not None and self.elements.find(name) in elements
            }
        return list(routers)

    def _unsettle(self) -> None:
        """Put in doubt every route through the routers that moved flows."""
        self._unsettled = self.moved
        for (slot, _), route in self._routes.items():
            if route.unsettled_by(self.moves, self.topology.router):
                self._stale[slot] = None

    def forget(self, slots: Ints) -> None:
        """Drop what is known of these sessions."""
        slots = slots[slots < self.element.shape[0]]
        self.element[slots] = -1
        self.past_ns[slots] = 0
        self.floors.forget(slots)
        self.silent_traces.forget(slots.tolist())
        for slot in slots.tolist():
            self._stale.pop(slot, None)
            for direction in (FWD, REV):
                self._routes.pop((slot, direction), None)

    def refresh(self, most: int | None = None) -> None:
        """Work out the rows of up to `most` sessions (None: all) whose knowledge changed."""
        if self._unsettled != self.moved:
            self._unsettle()
        src = self.sessions.table["src"]
        for slot in list(self._stale)[:most]:
            del self._stale[slot]
            if slot < src.size and src[slot] >= 0:
                for direction in (FWD, REV):
                    sprayed = self.traced.is_sprayed(int(self.sessions.table["dscp"][slot]))
                    known = None if sprayed else self._routes.get((slot, direction))
                    route = self.route(*self._ends(slot, direction), known)
                    self._write(slot, direction, *route)

    def _write(self, slot: int, direction: int, crossed: dict[int, float], closed: bool) -> None:
        width = self.element.shape[2]
        if len(crossed) > width:
            pad = max(len(crossed), 2 * width) - width
            self.element = np.pad(self.element, ((0, 0), (0, 0), (0, pad)), constant_values=-1)
            self.weight = np.pad(self.weight, ((0, 0), (0, 0), (0, pad)))
        self.element[slot, direction] = -1
        self.element[slot, direction, : len(crossed)] = list(crossed)
        self.weight[slot, direction, : len(crossed)] = list(crossed.values())
        self.closed[slot, direction] = closed
        known = self._routes.get((slot, direction))
        self.past_ns[slot, direction] = 0 if known is None else max(known.changed_ns, known.doubt_ns)

    def _ends(self, slot: int, direction: int) -> tuple[str, str]:
        table, nics = self.sessions.table, self.sessions.nics.list
        src, dst = nics[table["src"][slot]], nics[table["dst"][slot]]
        return (src, dst) if direction == FWD else (dst, src)

    def route(self, sender: str, receiver: str, route: TracedRoute | None) -> tuple[dict[int, float], bool]:
        """Elements from one NIC to another with the probability of each, and whether no others can be crossed."""
        topology = self.topology
        names = {f"tx {sender}": 1.0, f"rx {receiver}": 1.0}
        closed = bool(topology.leaf_of)
        if route is None:
            names.update(equal_cost(topology, sender, receiver))
        else:
            names.update(traced(topology, sender, receiver, tuple(route.hops)))
            closed |= None not in route.hops and not route.doubt_ns
            if route.doubt_ns:
                open_hops = (*route.hops[: route.doubt_at + 1], *[None] * (len(route.hops) - route.doubt_at - 1))
                elsewhere = traced(topology, sender, receiver, open_hops)
                names = mixed([names, {**elsewhere, f"tx {sender}": 1.0, f"rx {receiver}": 1.0}], _DOUBT)
            elif route.sprayed():
                routes = [traced(topology, sender, receiver, tuple(hops)) for hops in route.others]
                routes = [names, *({**w, f"tx {sender}": 1.0, f"rx {receiver}": 1.0} for w in routes)]
                names = mixed(routes, 1 - 1 / len(routes))
                closed = False
        return {self.elements.add(name): weight for name, weight in names.items()}, closed

    def groups(self) -> Ints:
        """(nics,) NICs that share a switch, by round trips (`LeafGroups`); all −1 where cabling is declared."""
        nics = len(self.sessions.nics)
        if self.topology.leaf_of:
            return np.full(nics, -1, np.int64)
        return self._groups.of(nics)

    def reached_since(self, slot: int, then_ns: int) -> tuple[list[int], list[int]]:
        """Elements that a silent path's packets have passed since then, and those beyond what stopped them (`reach`).

        Of a path whose packets are sprayed its own trace tells nothing.
        """
        hops, route = self.silent_traces.since(slot, then_ns), self._routes.get((slot, FWD))
        if hops is None or route is None or self.traced.is_sprayed(int(self.sessions.table["dscp"][slot])):
            return [], []
        passed, beyond = reach(self.topology, *self._ends(slot, FWD), route.hops, hops)
        return self.numbers(passed), self.numbers(beyond)

    def is_traced(self, slots: Ints) -> bool:
        """Whether agents trace some of these sessions, none of which is sprayed."""
        sprayed = map(self.traced.is_sprayed, set(self.sessions.table["dscp"][slots].tolist()))
        return not any(sprayed) and any((slot, FWD) in self._routes for slot in slots.tolist())

    # -- names --------------------------------------------------------------------------------------------------

    def nic_element(self, nic: str, side: str) -> int:
        """Part number of a NIC's ``tx`` or ``rx`` side; −1 when no path crosses it yet."""
        return self.elements.find(f"{side} {nic}")

    def subject(self, element: int) -> Subject:
        """What a finding calls this element."""
        kind, _, name = self.elements.list[element].rpartition(" ")
        if kind in ("tx", "rx"):
            return Subject("nic", name)
        if kind == "node":
            return Subject("switch", name)
        a, _, b = self._directed(name).partition("->")
        return Subject("link", link_id(a, b) if a else name)

    def switches_of(self, cable: Subject) -> set[str]:
        """Switches at which a cable ends, named by its link or NIC."""
        if cable.type == "nic":
            leaf = self.topology.leaf_of.get(cable.id)
            return set() if leaf is None else {leaf}
        return {end for end in cable.id.split("--") if end in self.topology.neighbours}

    def direction(self, element: int) -> str:
        """Direction of the element as ``a->b``; for a NIC with unknown cable ``h00/r0 tx``; for a switch its name."""
        kind, _, name = self.elements.list[element].rpartition(" ")
        if kind not in ("tx", "rx"):
            return self._directed(name)
        return self.side(name, kind)

    def _directed(self, name: str) -> str:
        """``->y`` with the address of the near end, where that is known."""
        return f"{self.ends.opposite(name[2:]) or ''}{name}" if name.startswith("->") else name

    def side(self, nic: str, side: str) -> str:
        """The direction that a NIC's ``tx`` or ``rx`` side stands for."""
        leaf = self.topology.leaf_of.get(nic)
        if leaf is None:
            return f"{nic} {side}"
        return f"{nic}->{leaf}" if side == "tx" else f"{leaf}->{nic}"

    def numbers(self, directions: Iterable[str]) -> list[int]:
        """Part numbers of these directions, as `direction` names them."""
        found = []
        for name in directions:
            a, arrow, b = name.partition("->")
            if not arrow:
                nic, _, side = name.partition(" ")
                found.append(self.elements.find(f"{side} {nic}" if side else f"node {name}"))
            elif "/" in a or "/" in b:
                found.append(self.nic_element(a, "tx") if "/" in a else self.nic_element(b, "rx"))
            else:
                found += [self.elements.find(name), self.elements.find(f"->{b}")]
        return [number for number in found if number >= 0]

    # -- for the search -----------------------------------------------------------------------------------------

    def entries(self, slots: Ints, fwd: Bools, rev: Bools, then_ns: Ints | None = None) -> tuple[Ints, Ints, Floats]:
        """(row, element, weight) of observations that cross the forward and/or reverse direction of these sessions.

        An element that both directions cross occurs once, with the probability that either does. `then_ns` is the bus
        time of each observation (None: now), which may lie before the present route.
        """
        element, weight = self.element[slots], self.weight[slots]
        use = (element >= 0) & np.stack([fwd, rev], axis=1)[:, :, None]
        if then_ns is not None:
            past = (then_ns[:, None] < self.past_ns[slots]) & np.stack([fwd, rev], axis=1)
            if past.any():
                element, weight = self._as_it_was(slots, past, then_ns, element, weight)
                use = (element >= 0) & np.stack([fwd, rev], axis=1)[:, :, None]
        row, route, _ = np.nonzero(use)
        flat_element, flat_weight = element[use], weight[use]
        if not (fwd & rev).any():
            return row.astype(np.int64), flat_element, flat_weight
        key = row * np.int64(max(1, len(self.elements))) + flat_element
        order = np.lexsort((route, key))
        first = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0]) if order.size else np.empty(0, np.int64)
        missed = np.multiply.reduceat(1.0 - flat_weight[order], first) if order.size else np.empty(0)
        return row[order][first].astype(np.int64), flat_element[order][first], 1.0 - missed

    def _as_it_was(self, slots: Ints, past: Bools, then_ns: Ints, element: Ints, weight: Floats) -> tuple[Ints, Floats]:
        """Rows of elements and weights with the routes that held when those in `past` were observed."""
        written = []
        for row, direction in np.argwhere(past).tolist():
            slot = int(slots[row])
            route = self._routes[slot, direction]
            earlier = TracedRoute(route.before(int(then_ns[row])), 0)
            crossed, _ = self.route(*self._ends(slot, direction), earlier)
            written.append((row, direction, crossed))
        width = max((len(crossed) for *_, crossed in written), default=0)
        pad = max(0, width - element.shape[2])
        element = np.pad(element, ((0, 0), (0, 0), (0, pad)), constant_values=-1)
        weight = np.pad(weight, ((0, 0), (0, 0), (0, pad)))
        for row, direction, crossed in written:
            element[row, direction] = -1
            element[row, direction, : len(crossed)] = list(crossed)
            weight[row, direction, : len(crossed)] = list(crossed.values())
        return element, weight

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values and arrays."""
        return {
            "elements": self.elements.list,
            "declared": self.topology.declared,
            "declarations": self.declared,
            "met": list(self.ends.addresses),
            "floors": self.floors.snapshot(),
            "groups": self._groups.snapshot(),
            "element": self.element,
            "weight": self.weight,
            "past": self.past_ns,
            "closed": self.closed,
            "routes": [[s, d, route.snapshot()] for (s, d), route in self._routes.items()],
            "stale": list(self._stale),
            "moves": [[router, at] for router, at in self.moves.items()],
            "moved": [self.moved, self._unsettled],
            "traced": self.traced.snapshot(),
            "silent": self.silent_traces.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.elements.restore(state["elements"])
        self.topology = Topology(state["declared"])
        self.ends = LinkEnds(state["met"])
        self.floors.restore(state["floors"])
        if "groups" in state:  # a release before had none
            self._groups.restore(state["groups"])
        self.declared = int(state["declarations"])
        self.element, self.weight = np.asarray(state["element"]), np.asarray(state["weight"])
        self.past_ns = np.asarray(state["past"], np.int64)
        self.closed = np.asarray(state.get("closed", np.zeros(self.past_ns.shape)), np.bool_)  # 0.1 snapshots lack it
        self._routes = {(s, d): TracedRoute(**route) for s, d, route in state["routes"]}
        self._stale = dict.fromkeys(state["stale"])
        self.moves = {str(router): int(at) for router, at in state["moves"]}
        self.moved, self._unsettled = state["moved"]
        self.traced.restore(state.get("traced", ((), ())))  # a release before had none, nor the next
        self.silent_traces.restore(state.get("silent", (0, ())))
