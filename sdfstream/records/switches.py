"""Rows that a switch's management gave and no agent read: how they are told from an agent's, and how ports are named.

Counters of switches come in by gNMI (``sdfstream switches``) as rows of ``sdf.raw.port.v1``, like those of a host's
NICs. A switch has no agent, probes nothing and is no end of a path. So whoever reads ``sdf.raw.port.v1`` asks
`is_switch` of the message's boot id first: the run that published it begins with ``gnmi-``. The boot id stands in
headers, recordings and the archive, thus holds for a replay as well; nothing in a row could be mistaken for it.

A port of switch ``l0`` is named as the declared cabling names it: node ``l0``, port ``Ethernet1/1`` make port id
``l0/Ethernet1/1:1``. Names of interfaces may hold slashes and colons, names of switches no slash.

Examples
--------
>>> is_switch("gnmi-5f0c"), is_switch("5f0c")
(True, False)
>>> port_id("l0", "et-0/0/1:0")
'l0/et-0/0/1:0:1'
>>> interface_of("l0/et-0/0/1:0:1")
('l0', 'et-0/0/1:0')
"""

from __future__ import annotations

from typing import Final

BOOT_PREFIX: Final = "gnmi-"


def is_switch(boot_id: str) -> bool:
    """Whether the producer's run `boot_id` speaks for switches: no agent, no NIC, no clock of the mesh."""
    return boot_id.startswith(BOOT_PREFIX)


def nic_id(switch: str, interface: str) -> str:
    """What stands in column ``nic``: the interface, as if it were a NIC."""
    return f"{switch}/{interface}"


def port_id(switch: str, interface: str) -> str:
    """What stands in column ``port``."""
    return f"{switch}/{interface}:1"


def interface_of(port: str) -> tuple[str, str]:
    """Switch and interface of a port id."""
    switch, _, rest = port.partition("/")
    return switch, rest.rpartition(":")[0]
