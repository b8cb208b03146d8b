"""Which cable hangs in a switch's port, by the declared cabling.

An end of a declared link with ``node`` l0 and ``port`` Ethernet1/1 is the port that switches' rows call
``l0/Ethernet1/1:1`` (`records.switches`). Findings about such a port are told of its cable.
"""

from __future__ import annotations

from sdfstream.records.fabric import Topology, link_id
from sdfstream.records.finding import Subject
from sdfstream.records.switches import interface_of


def ends_of(topology: Topology, port: str) -> tuple[str, str] | None:
    """The switch of a port, and the node at the far end of its cable; None: no cable is declared there."""
    here, interface = interface_of(port)
    link = topology.cable_at(here, interface)
    if link is None:
        return None
    return here, next((end.node for end in link.ends if end.node != here), here)


def cable_of(topology: Topology, port: str) -> Subject | None:
    """What findings call the cable: the link, or the NIC where it leads to one; None: it is not declared."""
    ends = ends_of(topology, port)
    if ends is None:
        return None
    return Subject("nic", ends[1]) if ends[1] in topology.nics else Subject("link", link_id(*ends))
