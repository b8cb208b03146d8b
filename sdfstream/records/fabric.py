"""The fabric: names of NICs, links and probe paths, the flows and queue pairs it carries, its declared topology.

NIC id ``host/nic``; port id ``host/nic:port``; link id ``a--b`` (its two ends' node names, sorted); one direction
of a link ``a->b``. Path id: (src, dst, transport, path, class, dir).

A *flow* is one direction of a five-tuple and a class, which an ECMP hash sends over one route. A probe path is named
by its source port alone (`PathId`); traffic of a job has other destination ports, so a hash may send it elsewhere than
a probe with the same source port. Its route is found by tracing the flow itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple, TypeVar

from sdfstream.errors import FormatError


class PathId(NamedTuple):
    """One direction of one session: what a probe may speak for, and nothing else."""

    src: str
    dst: str
    transport: str
    path: int
    dscp: int
    dir: str

    def __str__(self) -> str:
        """``h00/r0>h04/r0 udp:50001 dscp46 fwd``."""
        return f"{self.src}>{self.dst} {self.transport}:{self.path} dscp{self.dscp} {self.dir}"


def host_of(nic: str) -> str:
    """The host of a NIC or port id.

    >>> host_of("gpu-17/mlx5_2:1")
    'gpu-17'
    """
    return nic.partition("/")[0]


def link_id(a: str, b: str) -> str:
    """The id of the link between `a` and `b`, in either order.

    >>> link_id("s1", "l0")
    'l0--s1'
    """
    return "--".join(sorted((a, b)))


def direction_id(a: str, b: str) -> str:
    """The id of the direction from `a` to `b`.

    >>> direction_id("l0", "s1")
    'l0->s1'
    """
    return f"{a}->{b}"


FLOW_TYPE: Final = "sdf.state.topology.flow.v1"
"""CloudEvents type, on the topology topic, of the route of a flow."""
SILENT_TYPE: Final = "sdf.state.topology.silent.v1"
"""CloudEvents type, on the topology topic, of how far the packets of a path got once it had fallen silent: no route."""

Protocol = Literal["udp", "tcp"]


class Flow(NamedTuple):
    """Packets from one NIC to another with these ports in this class."""

    src: str
    """NIC id that sends."""
    dst: str
    """NIC id that receives."""
    protocol: str
    """``udp`` (RoCEv2 and our emulation of it) or ``tcp``."""
    source_port: int
    destination_port: int
    dscp: int

    def __str__(self) -> str:
        """``h00/r0>h04/r0 udp 50001>4791 dscp26``."""
        return f"{self.src}>{self.dst} {self.protocol} {self.source_port}>{self.destination_port} dscp{self.dscp}"

    @property
    def back(self) -> Flow:
        """The same flow's answers as TCP sends them: ends and ports swapped."""
        return Flow(self.dst, self.src, self.protocol, self.destination_port, self.source_port, self.dscp)


def flow_from(data: dict[str, Any]) -> Flow:
    """The flow in the data of a `FLOW_TYPE` event (KeyError, ValueError or TypeError when it is none)."""
    return Flow(
        str(data["src"]),
        str(data["dst"]),
        str(data["protocol"]),
        int(data["source_port"]),
        int(data["destination_port"]),
        int(data["dscp"]),
    )


@dataclass(frozen=True, slots=True)
class QueuePair:
    """The sending end of a queue pair, or a kernel flow that is treated as one."""

    qp: str
    """``host/nic#number``, unique in the cluster, e.g. ``h00/r0#17``."""
    rank: int
    peer_rank: int
    src: str
    """NIC id that sends the data."""
    dst: str
    """NIC id that receives it."""
    dst_address: str
    path: int
    """Its source port now: what steering changes."""
    dst_port: int
    protocol: str = "udp"
    """``udp`` or ``tcp``."""
    transport: str = "udp"
    dscp: int = 0
    answer_path: int | None = None
    """Source port of the receiver's answers; None: as RoCEv2 has it here, equal to `path`. Answers go to port
    `answer_port` of the sender."""
    answer_port: int | None = None
    """Destination port of the answers; None: `dst_port`. TCP: `answer_path` is dst_port and `answer_port` is path."""
    steering: str = "none"
    """How its path can be changed: ``socket`` (the process's control socket), ``kernel`` (rewritten on the host), or
    ``none``."""
    alternates: tuple[int, ...] = ()
    """Source ports that it may be moved to."""
    rate_bps: int | None = None
    """Limit in force; None: none."""
    src_address: str = ""
    """IP address that it sends from; empty: not told. The receiving host's agent answers probes from there."""
    peer_qp: str = ""
    """Id of the queue pair at its far end, whose own packets the answers are; empty: answers belong to none."""
    counted: str = "sent"
    """Of a kernel flow, which host counts its throughput: the ``sent`` one, or where it is ``received``. What a sender
    without congestion control (UDP) sends says nothing of what arrives."""

    def flow(self, path: int | None = None) -> Flow:
        """Its data's flow, on source port `path` (default: the present one)."""
        return Flow(self.src, self.dst, self.protocol, self.path if path is None else path, self.dst_port, self.dscp)

    def is_far_end_of(self, other: QueuePair) -> bool:
        """Whether the answers of `other` are this one's packets."""
        return self.qp == other.peer_qp and (self.src, self.dst) == (other.dst, other.src)

    def answers(self, path: int | None = None) -> Flow:
        """The flow of its acknowledgements while the data uses source port `path`."""
        own = self.path if path is None else path
        if self.protocol == "tcp":
            return self.flow(own).back
        return Flow(
            self.dst,
            self.src,
            self.protocol,
            own if self.answer_path is None else self.answer_path,
            self.dst_port if self.answer_port is None else self.answer_port,
            self.dscp,
        )


def answered(pair: QueuePair, far: QueuePair | None) -> QueuePair:
    """`pair` with its answers on the present path of `far`, if that is the queue pair at its far end."""
    return replace(pair, answer_path=far.path) if far is not None and far.is_far_end_of(pair) else pair


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
    port: str = ""
    """Name of the interface on that node; empty: not declared."""


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
    """A declaration (``sdf.state.topology.declared.v1``), parsed once for every stage; empty when nothing is declared.

    What cannot be read of it is left out and listed in `faults`, and each stage decides by `refuse` which faults it
    does not bear.

    A router answers a packet whose TTL ran out with the address of the interface by which the packet came in, so a
    declared hop address names one link direction: the one that the packet has just crossed.
    """

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
        self.graph: dict[str, list[str]] = {}
        """Switch to neighbouring switches, sorted; parallel cables stand twice."""
        self._arrivals: dict[str, tuple[str, str]] = {}
        self._cables = {(end.node, end.port): link for link in self.links for end in link.ends if end.port}
        self._hops: dict[str, str] = {}
        self._speeds_bps: dict[str, int] = {}
        self._nic_speeds_bps: dict[str, int] = {}
        for link in self.links:
            for near, far in (link.ends, link.ends[::-1]):
                self._connect(near.node, far, link.speed_bps)
        self.graph = {node: sorted(near) for node, near in self.graph.items()}
        self.leaves = frozenset(self.leaf_of.values())
        """Switches that NICs are cabled to."""
        self.shares: dict[tuple[str, str], dict[str, float]] = {}
        """Pair of switches to what `routes.equal_cost` found between them."""

    def _connect(self, origin: str, far: LinkEnd, speed_bps: int) -> None:
        """Take one direction of a link, from node `origin` to the end `far`."""
        node, address = far.node, far.address
        if origin in self.nics:
            self.leaf_of[origin] = node
            self._nic_speeds_bps[origin] = speed_bps
        else:
            self.neighbours.setdefault(origin, set()).add(node)
            if node not in self.nics:
                self.graph.setdefault(origin, []).append(node)
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

    def cable_at(self, node: str, port: str) -> DeclaredLink | None:
        """The cable in port `port` of `node`, by their declared names; None: none is declared."""
        return self._cables.get((node, port))

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


def _end(link: Any, side: str) -> LinkEnd:
    end = link[side]
    node, address, port = end.get("node"), end.get("address"), end.get("port")
    if not node:
        raise KeyError("node")
    return LinkEnd(str(node), str(address).partition("/")[0] if address else "", str(port or ""))
