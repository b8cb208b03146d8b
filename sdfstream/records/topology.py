"""The declared topology (``sdf.state.topology.declared.v1``), parsed once for every stage that reads it.

A declaration lists nodes, links with both their ends, and NICs. `Topology` never refuses one: what cannot be read is
left out and listed in `Topology.faults`, and each stage decides by `Topology.refuse` which faults it does not bear.

A router answers a packet whose TTL ran out with the address of the interface by which the packet came in, so a declared
hop address names one link direction: the one that the packet has just crossed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeVar

from sdfstream.errors import FormatError
from sdfstream.records import routes
from sdfstream.records.fabric import direction_id

DECLARED_TYPE: Final = "sdf.state.topology.declared.v1"
PATH_TYPE: Final = "sdf.state.topology.path.v1"
"""CloudEvents type of one traced direction of a probe path."""

_BPS_PER_MBPS: Final = 1_000_000
_UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError, OverflowError)

T = TypeVar("T")


class LinkEnd(NamedTuple):
    """One end of a declared link."""

    node: str
    """Host, switch or NIC id."""
    address: str
    """IP address of the interface, without prefix length; empty: not declared."""


class DeclaredLink(NamedTuple):
    """One declared cable."""

    id: str | None
    ends: tuple[LinkEnd, LinkEnd]
    speed_bps: int
    """0: not declared."""


class DeclaredNic(NamedTuple):
    """One declared NIC; its id is the key in `Topology.nics`."""

    link: str | None
    """Id of its cable."""
    rail: Any
    """As declared; None: not declared."""


class TopologyFault(NamedTuple):
    """Something of a declaration that could not be read."""

    field: str
    """``nics``, ``links``, ``links.id``, ``links.speed_mbps`` or ``nodes``."""
    error: Exception
    """A KeyError where a required key is absent."""


class Topology:
    """One declaration and the questions that its graph answers; empty when nothing was declared."""

    def __init__(self, declared: Mapping[str, Any] | None = None) -> None:
        self.declared: dict[str, Any] = dict(declared or {})
        """The event's data, as published."""
        self.faults: list[TopologyFault] = []
        self.nics: dict[str, DeclaredNic] = dict(self._items("nics", self._nic))
        self.links: list[DeclaredLink] = list(self._items("links", self._link))
        self.kinds: dict[str, str] = dict(self._items("nodes", self._node))
        """Node id to ``host``, ``leaf`` or ``spine``."""
        self.leaf_of: dict[str, str] = {}
        """NIC id to the switch that its cable leads to."""
        self.neighbours: dict[str, set[str]] = {}
        """Switch to all nodes at the far ends of its cables, NICs among them."""
        self._graph: routes.Graph = {}
        self._arrivals: dict[str, tuple[str, str]] = {}
        self._hops: dict[str, str] = {}
        self._speeds_bps: dict[str, int] = {}
        self._nic_speeds_bps: dict[str, int] = {}
        for link in self.links:
            for near, far in (link.ends, link.ends[::-1]):
                self._connect(near.node, far, link.speed_bps)
        self._graph = {node: sorted(near) for node, near in self._graph.items()}
        self.leaves = frozenset(self.leaf_of.values())
        """Switches that NICs are cabled to."""
        self._equal_cost: dict[tuple[str, str], dict[str, float]] = {}

    def _connect(self, origin: str, far: LinkEnd, speed_bps: int) -> None:
        """Take one direction of a link, from node `origin` to the end `far`."""
        node, address = far
        if origin in self.nics:
            self.leaf_of[origin] = node
            self._nic_speeds_bps[origin] = speed_bps
        else:
            self.neighbours.setdefault(origin, set()).add(node)
            if node not in self.nics:
                self._graph.setdefault(origin, []).append(node)
        if address:
            self._arrivals[address] = (origin, node)
            self._hops[direction_id(origin, node)] = address
            self._speeds_bps[address] = speed_bps

    # -- reading ------------------------------------------------------------------------------------------------

    def _items(self, field: str, read: Callable[[Any], T]) -> Iterator[T]:
        """Every item of a list of the declaration that `read` can read."""
        try:
            items: Iterable[Any] = iter(self.declared.get(field, ()))
        except TypeError as error:
            self.faults.append(TopologyFault(field, error))
            return
        for item in items:
            try:
                yield read(item)
            except _UNREADABLE as error:
                self.faults.append(TopologyFault(field, error))

    @staticmethod
    def _nic(item: Any) -> tuple[str, DeclaredNic]:
        name, link = str(item["id"]), item.get("link")
        return name, DeclaredNic(None if link is None else str(link), item.get("rail"))

    @staticmethod
    def _node(item: Any) -> tuple[str, str]:
        return str(item["id"]), str(item["kind"])

    def _link(self, item: Any) -> DeclaredLink:
        name, speed_bps = item.get("id"), 0
        if name is None:
            self.faults.append(TopologyFault("links.id", KeyError("id")))
        try:
            speed_bps = int(item.get("speed_mbps") or 0) * _BPS_PER_MBPS
        except _UNREADABLE as error:
            self.faults.append(TopologyFault("links.speed_mbps", error))
        return DeclaredLink(None if name is None else str(name), (_end(item, "a"), _end(item, "b")), speed_bps)

    def faults_in(self, *fields: str, absent: bool = True) -> Iterator[TopologyFault]:
        """Faults in these fields; `absent` unset: but for items that merely lack a required key."""
        for fault in self.faults:
            if fault.field in fields and (absent or not isinstance(fault.error, KeyError)):
                yield fault

    def refuse(self, *fields: str, absent: bool = True) -> Topology:
        """The topology itself, unless it has a fault in one of these fields.

        Raises
        ------
        FormatError
            ``topology``, for the first of `faults_in`.
        """
        for fault in self.faults_in(*fields, absent=absent):
            raise FormatError("topology", str(fault.error)) from fault.error
        return self

    # -- addresses ----------------------------------------------------------------------------------------------

    def router(self, hop: str) -> str:
        """The node whose interface this is; its own address where that is not declared."""
        ends = self._arrivals.get(hop)
        return hop if ends is None else ends[1]

    def arrival(self, hop: str | None) -> tuple[str, str] | None:
        """(neighbour, node) of the link direction that ends at this address; None: not declared."""
        return None if hop is None else self._arrivals.get(hop)

    def direction(self, hop: str) -> str:
        """The link direction that ends at this address, ``a->b``; ``->address`` where it was not declared."""
        ends = self._arrivals.get(hop)
        return f"->{hop}" if ends is None else direction_id(*ends)

    def hop(self, direction: str) -> str | None:
        """The address at which a link direction ends, as `direction` names it; None when it has none."""
        return direction[2:] if direction.startswith("->") else self._hops.get(direction)

    def contradicted_by(self, hops: Sequence[str | None]) -> bool:
        """Whether neighbouring hops, both declared, are no neighbours: the trace's packets took several routes."""
        known = [self.arrival(hop) for hop in hops]
        return any(a is not None and b is not None and b[0] != a[1] for a, b in pairwise(known))

    # -- speeds, rails, leaves ----------------------------------------------------------------------------------

    def speed_bps(self, hop: str) -> int:
        """Declared speed of the link direction that ends at this address; 0: not known."""
        return self._speeds_bps.get(hop, 0)

    def nic_speed_bps(self, nic: str) -> int:
        """Declared speed of a NIC's cable; 0: not known."""
        return self._nic_speeds_bps.get(nic, 0)

    def rail(self, nic: str) -> str:
        """The NIC's rail as declared, else its name on its host."""
        about = self.nics.get(nic)
        declared = None if about is None or about.rail is None else str(about.rail)
        return declared or nic.partition("/")[2]

    # -- routes -------------------------------------------------------------------------------------------------

    def traced(self, sender: str, receiver: str, hops: Sequence[str | None]) -> dict[str, float]:
        """Elements between the two NICs' cables on a traced route, with the probability of each.

        The first hop's link is the sender's own cable and belongs to its NIC; an answer from the receiver itself is
        the receiver's cable. Without a declaration a hop is known by its address alone. With one, a hop that did
        not answer is narrowed down to the shortest routes that agree with the others.
        """
        if not self.leaf_of:
            return {f"->{address}": 1.0 for address in hops[1:] if address is not None}
        arrivals = [self.arrival(hop) for hop in hops]
        found = self._agreeing(sender, receiver, arrivals)
        if found:
            return found
        elements: dict[str, float] = {}
        for origin, node in (a for a in arrivals if a is not None):
            if node not in (sender, receiver):
                elements[f"node {node}"] = 1.0
                if origin != sender and origin not in self.leaf_of:
                    elements[direction_id(origin, node)] = 1.0
        return elements

    def _agreeing(self, sender: str, receiver: str, arrivals: Sequence[tuple[str, str] | None]) -> dict[str, float]:
        """Shares of all shortest routes that agree with the hops that answered; {} if none does."""
        first, last = self.leaf_of.get(sender), self.leaf_of.get(receiver)
        if arrivals and arrivals[-1] is not None and arrivals[-1][1] == receiver:
            arrivals = arrivals[:-1]
        if first is None or last is None or not arrivals:
            return {}
        return routes.agreeing(self._graph, first, last, arrivals)

    def equal_cost(self, sender: str, receiver: str) -> dict[str, float]:
        """Elements between two NICs with the share of equal-cost routes that use them; empty when not declared."""
        a, b = self.leaf_of.get(sender), self.leaf_of.get(receiver)
        if a is None or b is None:
            return {}
        if (a, b) not in self._equal_cost:
            self._equal_cost[a, b] = routes.equal_cost(self._graph, a, b)
        return self._equal_cost[a, b]


def _end(link: Any, side: str) -> LinkEnd:
    end = link[side]
    node, address = end.get("node"), end.get("address")
    if not node:
        raise KeyError("node")
    return LinkEnd(str(node), str(address).partition("/")[0] if address else "")
