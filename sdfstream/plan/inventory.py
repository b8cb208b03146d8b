"""What there is to plan with: NICs that can probe, what each agent may spend, and the routes that traces have shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sdfstream.records.units import Int64s

DEFAULT_BUDGET_PPS = 1000.0
"""What an agent may send, probes and answers together, unless it says otherwise: 1 Mbit/s of 128-byte packets."""


@dataclass(frozen=True, slots=True)
class Nic:
    """One NIC of an agent in the mesh."""

    id: str
    """host/nic."""
    host: str
    clock: str
    """The clock that stamps its packets: the host for the kernel's stamps, the NIC itself for its own."""
    address: str
    port: int = 862
    """UDP port of its reflector."""
    plane: str | None = None
    rail: int | None = None
    leaf: str | None = None
    """The switch at the far end of its cable, where cabling is declared."""
    first_port: int = 49_152
    """Source ports that its agent may use for planned sessions: this one…"""
    ports: int = 32
    """…and so many upward from it."""
    rdma: bool = False
    """It answers RoCEv2 probes."""


class ProbeRoute(NamedTuple):
    """One direction of one probe path, traced: where a source port goes."""

    src: str
    """NIC id of the session's sender."""
    dst: str
    path: int
    """UDP source port."""
    dscp: int
    forward: bool
    """Towards the reflector; False: from it, as the answers go."""
    hops: tuple[str, ...]
    """Router interfaces behind the first leaf; the same hops are the same route."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything a plan depends on, beside settings and epoch."""

    nics: tuple[Nic, ...]
    budgets: Mapping[str, float] = field(default_factory=dict)
    """Packets per second that a host may send, probes and answers together; absent: `DEFAULT_BUDGET_PPS`."""
    routes: Sequence[ProbeRoute] = ()
    crossings: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """How many routes lead from one leaf to another, by (smaller, larger) name, where cabling is declared."""

    def budget(self, host: str) -> float:
        """What `host` may spend, packets/s."""
        return self.budgets.get(host, DEFAULT_BUDGET_PPS)


class Columns(NamedTuple):
    """An inventory's NICs as columns; (n,) each, in order of their ids."""

    nics: tuple[Nic, ...]
    host: Int64s
    clock: Int64s
    group: Int64s
    """NICs of one group can reach one another: a plane, or one rail of it."""
    leaf: Int64s
    """−1: not known."""
    hosts: tuple[str, ...]
    clocks: tuple[str, ...]
    groups: tuple[str, ...]
    leaves: tuple[str, ...]
    number: dict[str, int]
    """NIC id to its index."""


def columns(inventory: Inventory, *, cross_rail: bool) -> Columns:
    """The NICs of `inventory` as columns."""
    nics = tuple(sorted(inventory.nics, key=lambda nic: nic.id))
    hosts, host = _numbered([nic.host for nic in nics])
    clocks, clock = _numbered([nic.clock for nic in nics])
    groups, group = _numbered([_group(nic, cross_rail) for nic in nics])
    # a switch of one name in two groups is two leaves: nothing crosses from one group to the other
    leaves, leaf = _numbered([f"{_group(nic, cross_rail)}|{nic.leaf}" if nic.leaf else "" for nic in nics])
    if leaves and leaves[0] == "":
        leaves, leaf = leaves[1:], leaf - 1
    return Columns(
        nics, host, clock, group, leaf, hosts, clocks, groups, leaves, {nic.id: i for i, nic in enumerate(nics)}
    )


def _group(nic: Nic, cross_rail: bool) -> str:
    rail = "" if cross_rail or nic.rail is None else str(nic.rail)
    return f"{nic.plane or ''}/{rail}"


def _numbered(names: Sequence[str]) -> tuple[tuple[str, ...], Int64s]:
    known = tuple(sorted(set(names)))
    number = {name: i for i, name in enumerate(known)}
    return known, np.array([number[name] for name in names], dtype=np.int64)
