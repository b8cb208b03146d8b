"""Which hosts are near each other: by declared cabling, else by the least delays measured between them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from sdfstream.board.path_list import code_of, measures_of
from sdfstream.board.paths import PathFigures
from sdfstream.numeric.proximity import leaf_groups, least_by_pair
from sdfstream.records.fabric import Topology, host_of
from sdfstream.records.units import Float64s, Int64s

DECLARED: Final = "declared"
MEASURED: Final = "measured"


@dataclass(frozen=True, slots=True)
class HostGroup:
    """Hosts that reach each other over the same leaf switches, rail by rail."""

    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    """Leaves that are declared; empty where the group is measured."""


@dataclass(frozen=True, slots=True)
class Proximity:
    """All hosts in groups."""

    by: str
    """`DECLARED` or `MEASURED`."""
    groups: tuple[HostGroup, ...]
    unplaced: tuple[str, ...]
    """Hosts of which no group is known."""


def proximity_of(topology: Topology, figures: PathFigures, now_ns: int) -> Proximity:
    """Groups by the declared cabling where there is any, else by the round trips that are measured now."""
    if topology.leaf_of:
        nics = topology.nics or topology.leaf_of
        return _grouped(DECLARED, {nic: topology.leaf_of.get(nic) for nic in nics}, named=True)
    found = leaf_groups(len(figures.nics), *round_trips(figures, now_ns))
    number = {nic: None if at < 0 else str(at) for nic, at in zip(figures.nics, found.tolist(), strict=True)}
    return _grouped(MEASURED, number, named=False)


def round_trips(figures: PathFigures, now_ns: int) -> tuple[Int64s, Int64s, Float64s]:
    """Numbers of the two NICs of each pair, and the least round trip between them, ns.

    The two ways of one path are added, each without what queues add: offsets of the two clocks cancel out.
    """
    measures = measures_of(figures, now_ns)
    floor_ns = measures.p50_ns - measures.excess_ns
    usable = measures.fresh & np.isfinite(floor_ns)
    selector = code_of(figures.keys, 0, 0xFFFF)
    back = np.array([one[3] == "rev" for one in figures.selectors] or [False])[selector]
    numbers: dict[tuple[str, int, int], int] = {}
    session_of = np.array([numbers.setdefault(one[:3], len(numbers)) for one in figures.selectors] or [0], np.int64)
    names, pair = np.unique((figures.keys >> np.uint64(16)).astype(np.int64), return_inverse=True)
    session = pair * np.int64(len(numbers) or 1) + session_of[selector]
    out, home = usable & ~back, usable & back
    both, at_out, at_home = np.intersect1d(session[out], session[home], return_indices=True)
    total: Float64s = floor_ns[out][at_out] + floor_ns[home][at_home]
    pair = names[both // (len(numbers) or 1)]
    return least_by_pair(pair >> 24, pair & 0xFFFFFF, total)


def _grouped(by: str, switch_of: Mapping[str, str | None], *, named: bool) -> Proximity:
    """Hosts whose NICs are on the same switches; `named`: the switches have names of their own."""
    switches: dict[str, list[str]] = {}
    unplaced: dict[str, None] = {}
    for nic, switch in switch_of.items():
        if switch is None:
            unplaced[host_of(nic)] = None
        else:
            switches.setdefault(host_of(nic), []).append(switch)
    alike: dict[tuple[str, ...], list[str]] = {}
    for host, its in switches.items():
        if host not in unplaced:
            alike.setdefault(tuple(sorted(set(its))), []).append(host)
    groups = [HostGroup(tuple(sorted(hosts)), its if named else ()) for its, hosts in alike.items()]
    return Proximity(by, tuple(sorted(groups, key=lambda g: g.hosts)), tuple(sorted(unplaced)))
