"""The cabling, addresses and routes of a lab fabric as planned, without a kernel.

IPv4: host NIC ``10.<leaf>.<host>.1/31``, its leaf's end ``.0``; leaf-spine ``172.16.<leaf>.<2·spine>/31`` (leaf)
and ``+1`` (spine). IPv6: ``fd00:0:<leaf>:<host>::1/127`` and ``fd00:ffff:<leaf>:<spine>::/127`` alike. A NIC keeps
its planned address when its cable ends at another leaf, as where leaves announce their neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from sdfstream.errors import ConfigError
from sdfstream.lab.spec import FabricSpec
from sdfstream.records.fabric import direction_id, link_id

Kind = Literal["host", "leaf", "spine"]
GROUP_ID = 100_000
"""Nexthop group over all spines; nexthop ids are spine index + 1."""
FIRST_IFINDEX = 1_000
"""Unique over the fabric: equal indexes at both ends of a veth delay its carrier by up to 1 s."""
CROSS_RAIL_METRIC = 4_096
"""Of a host's routes to the leaves of other rails, behind those (IPv6: 1,024) by the NIC on that rail."""


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a cable."""

    node: str
    """Node that holds it (a host, not a NIC)."""
    end: str
    """Name of this end in link and direction ids: the NIC id for a host, else the node."""
    device: str
    ifindex: int
    address: str
    """IP address without prefix length."""

    @property
    def mac(self) -> bytes:
        """A locally administered address made of the interface index."""
        return b"\x02\x5d\xf0" + self.ifindex.to_bytes(3, "big")


@dataclass(frozen=True, slots=True)
class Cable:
    """A link: `a` is the host's or leaf's port, `b` the leaf's or spine's."""

    a: Port
    b: Port
    planned: str
    """Link id as planned; differs from `link` where it is mis-cabled."""

    @property
    def link(self) -> str:
        """Link id as it really is."""
        return link_id(self.a.end, self.b.end)

    @property
    def is_fabric(self) -> bool:
        """Leaf-spine, not host-leaf."""
        return self.a.end == self.a.node

    def far(self, port: Port) -> Port:
        """The other end."""
        return self.b if port is self.a else self.a


@dataclass(frozen=True, slots=True)
class IpRoute:
    """To `prefix`/`bits` by `gateway` on `ifindex`, or by the nexthop group when `gateway` is None."""

    prefix: str
    bits: int
    gateway: str | None = None
    ifindex: int = 0
    metric: int = 0
    """Of several routes to a prefix the one with the least metric is taken; 0: the kernel's own."""


@dataclass(frozen=True)
class FabricPlan:
    """Everything about a fabric that can be known without building it.

    Parameters
    ----------
    spec : FabricSpec
    swapped : frozenset of str
        Hosts whose rail 0 and rail 1 cables are swapped now.
    """

    spec: FabricSpec
    swapped: frozenset[str] = field(default_factory=frozenset)

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """Every node and its kind; hosts first."""
        kinds: dict[str, Kind] = dict.fromkeys(self.spec.host_names, "host")
        kinds.update(dict.fromkeys(self.spec.leaf_names, "leaf"))
        kinds.update(dict.fromkeys(self.spec.spine_names, "spine"))
        return kinds

    @cached_property
    def cables(self) -> tuple[Cable, ...]:
        """Every cable as plugged in now; a moved cable has the same index and interface indexes as before."""
        return tuple(self._host_cables()) + tuple(self._fabric_cables())

    @cached_property
    def by_link(self) -> dict[str, Cable]:
        """Cables by real link id and, where that is not taken, by planned link id."""
        planned = {c.planned: c for c in self.cables}
        return planned | {c.link: c for c in self.cables}

    @cached_property
    def by_nic(self) -> dict[str, Cable]:
        """Host cables by NIC id."""
        return {c.a.end: c for c in self.cables if not c.is_fabric}

    @cached_property
    def by_direction(self) -> dict[str, tuple[Port, Port]]:
        """(sending port, receiving port) of every direction as it really is."""
        pairs = [(c.a, c.b) for c in self.cables] + [(c.b, c.a) for c in self.cables]
        return {direction_id(a.end, b.end): (a, b) for a, b in pairs}

    @cached_property
    def by_ifindex(self) -> dict[int, tuple[Port, Port]]:
        """(sending port, receiving port) by the interface index of the sending port."""
        return {a.ifindex: (a, b) for a, b in self.by_direction.values()}

    @cached_property
    def ports(self) -> dict[str, list[tuple[Port, Cable]]]:
        """The ports of every node."""
        result: dict[str, list[tuple[Port, Cable]]] = {node: [] for node in self.kinds}
        for cable in self.cables:
            result[cable.a.node].append((cable.a, cable))
            result[cable.b.node].append((cable.b, cable))
        return result

    @property
    def nics(self) -> tuple[str, ...]:
        """NIC ids, host by host."""
        return tuple(self.by_nic)

    @property
    def link_bits(self) -> int:
        """Prefix length of a cable."""
        return 31 if self.spec.ip_version == 4 else 127

    def rail_of(self, nic: str) -> int:
        """Rail a NIC is planned on.

        Raises
        ------
        ConfigError
            No such NIC.
        """
        return int(self.nic(nic).a.device[1:])

    def nic(self, nic: str) -> Cable:
        """The cable of a NIC; raises ConfigError when there is no such NIC."""
        if nic not in self.by_nic:
            raise ConfigError(f"no such NIC in the lab: {nic!r}; there are {self.nics[0]} .. {self.nics[-1]}")
        return self.by_nic[nic]

    def targets(self, target: str) -> list[Cable]:
        """The cables a target names: a NIC, a link, a direction, or a node (all its links).

        Raises
        ------
        ConfigError
            Nothing in the lab has that name.
        """
        if target in self.by_nic:
            return [self.by_nic[target]]
        if target in self.by_link:
            return [self.by_link[target]]
        if target in self.by_direction:
            a, b = self.by_direction[target]
            return [self.by_link[link_id(a.end, b.end)]]
        if target in self.kinds:
            return [cable for _, cable in self.ports[target]]
        raise ConfigError(f"nothing in the lab is called {target!r}; name a NIC (h03/r1), link (l0--s1), direction "
                          "(l0->s1) or node (s1)")  # fmt: skip

    def routes(self, node: str) -> list[IpRoute]:
        """The routes a node needs beside its connected ones."""
        kind = self.kinds[node]
        if kind == "host":
            return list(self._host_routes(node))
        if kind == "leaf":
            return list(self._leaf_routes(node))
        return list(self._spine_routes(node))

    def uplinks(self, leaf: str) -> list[tuple[int, Port, Port]]:
        """(nexthop id, own port, spine's port) of every spine."""
        fabric = [(p, c.b) for p, c in self.ports[leaf] if c.is_fabric]
        return [(index + 1, own, far) for index, (own, far) in enumerate(fabric)]

    def _host_cables(self) -> Iterator[Cable]:
        index = FIRST_IFINDEX
        for h, host in enumerate(self.spec.host_names):
            for r in range(self.spec.rails):
                leaf = self.spec.leaf_of(h, r)
                nic = f"{host}/r{r}"
                real = self.spec.leaf_of(h, 1 - r) if host in self.swapped and r < 2 else leaf
                yield Cable(
                    Port(host, nic, f"r{r}", index, self._host_address(leaf, h, 1)),
                    Port(f"l{real}", f"l{real}", f"{host}-r{r}", index + 1, self._host_address(leaf, h, 0)),
                    link_id(nic, f"l{leaf}"),
                )
                index += 2

    def _fabric_cables(self) -> Iterator[Cable]:
        index = FIRST_IFINDEX + 2 * self.spec.hosts * self.spec.rails
        for i, leaf in enumerate(self.spec.leaf_names):
            for p, spine in enumerate(self.spec.spine_names):
                yield Cable(
                    Port(leaf, leaf, f"u{p}", index, self._fabric_address(i, p, 0)),
                    Port(spine, spine, f"d{i}", index + 1, self._fabric_address(i, p, 1)),
                    link_id(leaf, spine),
                )
                index += 2

    def _host_routes(self, host: str) -> Iterator[IpRoute]:
        """By each NIC to the leaves of its own rail first, and to the others for sockets that are bound to it."""
        for port, cable in self.ports[host]:
            rail = self.rail_of(port.end)
            for leaf in range(self.spec.leaves):
                metric = 0 if leaf % self.spec.rails == rail else CROSS_RAIL_METRIC + rail
                yield IpRoute(*self._leaf_prefix(leaf), cable.b.address, port.ifindex, metric)

    def _leaf_routes(self, leaf: str) -> Iterator[IpRoute]:
        for i, other in enumerate(self.spec.leaf_names):
            if other != leaf:
                yield IpRoute(*self._leaf_prefix(i))
        for nic, cable in self._moved():
            if cable.b.node != leaf and self.by_nic[nic].planned.endswith(f"--{leaf}"):
                yield IpRoute(cable.b.address, self.link_bits)

    def _spine_routes(self, spine: str) -> Iterator[IpRoute]:
        down = {cable.a.node: (port, cable.a) for port, cable in self.ports[spine]}
        for i, leaf in enumerate(self.spec.leaf_names):
            own, far = down[leaf]
            yield IpRoute(*self._leaf_prefix(i), far.address, own.ifindex)
        for _, cable in self._moved():
            own, far = down[cable.b.node]
            yield IpRoute(cable.b.address, self.link_bits, far.address, own.ifindex)

    def _moved(self) -> Iterator[tuple[str, Cable]]:
        return ((nic, c) for nic, c in self.by_nic.items() if c.link != c.planned)

    def _host_address(self, leaf: int, host: int, end: int) -> str:
        return f"10.{leaf}.{host}.{end}" if self.spec.ip_version == 4 else f"fd00:0:{leaf:x}:{host:x}::{end}"

    def _fabric_address(self, leaf: int, spine: int, end: int) -> str:
        if self.spec.ip_version == 4:
            return f"172.16.{leaf}.{2 * spine + end}"
        return f"fd00:ffff:{leaf:x}:{spine:x}::{end}"

    def _leaf_prefix(self, leaf: int) -> tuple[str, int]:
        return (f"10.{leaf}.0.0", 16) if self.spec.ip_version == 4 else (f"fd00:0:{leaf:x}::", 48)
