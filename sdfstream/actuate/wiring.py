"""Names and speeds from the declared topology: which link direction a hop address is, and what it carries.

A router answers a packet whose TTL ran out with the address of the interface by which the packet came in, so a hop
address names one link direction. Without a declaration it still names it, but nobody knows between whom and how fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from sdfstream.errors import FormatError
from sdfstream.records.fabric import direction_id

_MBPS = 1_000_000


class Wiring:
    """The declared cabling, by hop address and by NIC; empty when nothing was declared."""

    def __init__(self, declared: Mapping[str, Any] | None = None) -> None:
        self.declared: Mapping[str, Any] = declared or {}
        self._arrives: dict[str, tuple[str, str]] = {}
        self._address: dict[str, str] = {}
        self._speed_bps: dict[str, int] = {}
        self._nic_speed_bps: dict[str, int] = {}
        self._rail: dict[str, str] = {}
        self._leaf: dict[str, str] = {}
        try:
            self._read(self.declared)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise FormatError("topology", str(error)) from error

    def _read(self, data: Mapping[str, Any]) -> None:
        nics = {str(nic["id"]): nic for nic in data.get("nics", ())}
        for nic, about in nics.items():
            if about.get("rail") is not None:
                self._rail[nic] = str(about["rail"])
        for link in data.get("links", ()):
            a, b = link["a"], link["b"]
            speed = int(link.get("speed_mbps") or 0) * _MBPS
            for near, far in ((a, b), (b, a)):
                origin, node = str(near["node"]), str(far["node"])
                if origin in nics:
                    self._leaf[origin] = node
                    self._nic_speed_bps[origin] = speed
                if far.get("address"):
                    address = str(far["address"]).partition("/")[0]
                    self._arrives[address] = (origin, node)
                    self._address[direction_id(origin, node)] = address
                    self._speed_bps[address] = speed

    @property
    def known(self) -> bool:
        """Whether anything was declared."""
        return bool(self._arrives)

    def name(self, hop: str) -> str:
        """The link direction that a hop address stands for, ``a->b``; ``->address`` where it was not declared."""
        ends = self._arrives.get(hop)
        return f"->{hop}" if ends is None else direction_id(*ends)

    def hop(self, direction: str) -> str | None:
        """The hop address of a link direction as findings name it; None when it has none."""
        if direction.startswith("->"):
            return direction[2:]
        return self._address.get(direction)

    def speed_bps(self, hop: str) -> int:
        """Declared speed of the link direction; 0: not known."""
        return self._speed_bps.get(hop, 0)

    def nic_speed_bps(self, nic: str) -> int:
        """Declared speed of a NIC's cable; 0: not known."""
        return self._nic_speed_bps.get(nic, 0)

    def rail(self, nic: str) -> str:
        """The NIC's rail: as declared, else its name on its host."""
        return self._rail.get(nic) or nic.partition("/")[2]

    def broken(self, hops: Sequence[str | None]) -> bool:
        """Whether neighbouring hops, both declared, are no neighbours: the packets of this trace went several ways."""
        known = [None if hop is None else self._arrives.get(hop) for hop in hops]
        return any(a is not None and b is not None and b[0] != a[1] for a, b in pairwise(known))
