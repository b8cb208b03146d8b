"""GID tables: which addresses a port has, of which RoCE version, and which choices of an index are mistakes.

RoCE v1 packets are not IP: routers drop them, they have no source port, and nothing can steer them. A program that is
configured by *index* (``NCCL_IB_GID_INDEX``) gets whatever stands there, which differs from host to host.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Version = Literal["RoCE v2", "RoCE v1", "IB", "unknown"]
_VERSIONS: Final[dict[str, Version]] = {"RoCE v2": "RoCE v2", "IB/RoCE v1": "RoCE v1"}


@dataclass(frozen=True, slots=True)
class GidEntry:
    """One entry of a port's table."""

    index: int
    gid: str
    address: str
    """The IP address it stands for; IPv4 where it is mapped."""
    version: Version
    netdev: str
    """Net device that it belongs to; empty: not known."""
    scope: Literal["link-local", "routable"]


def gid_entry(
    index: int, gid: str, kind: str | None, netdev: str | None, *, infiniband: bool = False
) -> GidEntry | None:
    """An entry from the texts of sysfs; None: it is empty, or no GID.

    >>> gid_entry(3, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "eth0").address
    '10.0.0.1'
    """
    try:
        address = ipaddress.IPv6Address(gid.strip())
    except ValueError:
        return None
    if not int(address) or not int(address) & (1 << 64) - 1:  # also a prefix without an interface
        return None
    version: Version = "IB" if infiniband else _VERSIONS.get((kind or "").strip(), "unknown")
    scope: Literal["link-local", "routable"] = "link-local" if address.is_link_local else "routable"
    return GidEntry(index, str(address), str(address.ipv4_mapped or address), version, (netdev or "").strip(), scope)


def best_entry(entries: Iterable[GidEntry]) -> GidEntry | None:
    """The entry to use between hosts: RoCE v2, routable, IPv4 before IPv6, the lowest index."""
    usable = [e for e in entries if e.version == "RoCE v2" and e.scope == "routable"]
    return min(usable, key=lambda e: (":" in e.address, e.index), default=None)


def index_fault(entries: Iterable[GidEntry], index: int) -> str:
    """Why an index is a mistake on this port; empty: it is none."""
    found = list(entries)
    chosen = next((e for e in found if e.index == index), None)
    if chosen is None:
        have = ", ".join(str(e.index) for e in found) or "none"
        return f"GID index {index} is empty; filled: {have}"
    if chosen.version == "IB":
        return ""
    if chosen.version != "RoCE v2":
        return f"GID index {index} is {chosen.version}: it is not routed and cannot be steered"
    if chosen.scope == "link-local":
        return f"GID index {index} is link-local ({chosen.address}): it ends at the first router"
    return ""


def index_differs(tables: Mapping[str, Iterable[GidEntry]]) -> str:
    """Why no single index serves all ports (port name to table); empty: one does, or there is no port."""
    best = {port: entry.index for port, table in tables.items() if (entry := best_entry(table)) is not None}
    if len(set(best.values())) <= 1:
        return ""
    return "RoCE v2 has another GID index on each port: " + ", ".join(f"{p} {i}" for p, i in sorted(best.items()))
