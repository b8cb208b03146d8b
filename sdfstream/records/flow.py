"""Flows: one direction of a five-tuple and a class, which an ECMP hash sends over one route.

A probe path is named by its source port alone (`fabric.PathId`); traffic of a job has other destination ports, so a
hash may send it elsewhere than a probe with the same source port. Its route is found by tracing the flow itself.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

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
