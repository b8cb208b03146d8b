"""Which RDMA device, port and GID index carry a NIC's RoCEv2 sessions: those whose RoCE v2 GID is the NIC's address.

Peers know a NIC by its address, and an answer goes to the address that a probe's own packet carries. So no other entry
of a table will do, however often one index is written down for a whole cluster.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from sdfstream.probes.rdma.devices_io import RdmaPort
from sdfstream.probes.rdma.gids import GidEntry


@dataclass(frozen=True, slots=True)
class DeviceChoice:
    """Where a NIC's queue pairs are made."""

    device: str
    port: int
    gid_index: int


def choose(ports: Sequence[RdmaPort], netdev: str, address: str, wanted: str | None = None) -> DeviceChoice | str:
    """The device, port and GID index of a NIC; a sentence: it has none, and why.

    Parameters
    ----------
    ports : sequence of RdmaPort
        All of the machine.
    netdev, address : str
        Of the NIC.
    wanted : str, optional
        The device's name, where the settings say it.

    Examples
    --------
    >>> gid = GidEntry(3, "::ffff:10.0.0.1", "10.0.0.1", "RoCE v2", "eth0", "routable")
    >>> choose([RdmaPort("mlx5_0", 1, "ACTIVE", "Ethernet", (gid,), {})], "eth0", "10.0.0.1")
    DeviceChoice(device='mlx5_0', port=1, gid_index=3)
    """
    mine = [p for p in ports if p.device == wanted] if wanted else [p for p in ports if _belongs(p, netdev, address)]
    if not mine:
        if wanted:
            return f"there is no RDMA device {wanted}"
        return f"no RDMA device belongs to {netdev} ({address}): rdma_device names one where it cannot be found"
    found = [(entry, port) for port in mine for entry in port.gids if _same(entry.address, address)]
    for entry, port in found:
        if entry.version == "RoCE v2":
            return DeviceChoice(port.device, port.port, entry.index)
    device = mine[0].device
    if mine[0].link_layer == "InfiniBand":
        return f"{device} is an InfiniBand device: no session uses such ones yet"
    if found:
        return f"{device} has {address} as {found[0][0].version} alone: that is not routed and cannot be steered"
    return f"{device} has no GID of RoCE v2 for {address}; {_listed(mine[0].gids)}"


def _belongs(port: RdmaPort, netdev: str, address: str) -> bool:
    """By the net device of an entry; where the driver names none, by the address."""
    return any(g.netdev == netdev or (not g.netdev and _same(g.address, address)) for g in port.gids)


def _same(a: str, b: str) -> bool:
    return ipaddress.ip_address(a) == ipaddress.ip_address(b)


def _listed(gids: Sequence[GidEntry]) -> str:
    return "it has " + (", ".join(f"{g.index}: {g.address} ({g.version})" for g in gids) or "none")
