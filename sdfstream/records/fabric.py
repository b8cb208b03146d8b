"""Names of the fabric: NICs, links, probe paths, and the flows and queue pairs that it carries.

NIC id ``host/nic``; port id ``host/nic:port``; link id ``a--b`` (its two ends' node names, sorted); one direction
of a link ``a->b``. Path id: (src, dst, transport, path, class, dir).

A *flow* is one direction of a five-tuple and a class, which an ECMP hash sends over one route. A probe path is named
by its source port alone (`PathId`); traffic of a job has other destination ports, so a hash may send it elsewhere than
a probe with the same source port. Its route is found by tracing the flow itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple


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

    def flow(self, path: int | None = None) -> Flow:
        """Its data's flow, on source port `path` (default: the present one)."""
        return Flow(self.src, self.dst, self.protocol, self.path if path is None else path, self.dst_port, self.dscp)

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
