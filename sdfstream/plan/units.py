"""Units of coverage: pairs of attachments between which every route is to be crossed.

An *attachment* is a leaf, or a single NIC where the cabling is not known. Leaves of one group are all paired; lone
NICs are paired with their successor on a ring, which crosses each one's own link and samples the fabric behind it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan.config import PlanConfig
from sdfstream.plan.hashing import UInt64s, mixed, of_names, of_pair
from sdfstream.plan.inventory import Columns, Inventory
from sdfstream.records.units import Int64s

_RING, _NIC, _PORT = range(21, 24)
_MOST_PORTS: Final = 512
"""Source ports tried between two attachments at most."""


class Units(NamedTuple):
    """Pairs of attachments, (units,) each unless said otherwise."""

    a: Int64s
    b: Int64s
    id: UInt64s
    """Hash of the pair."""
    block: Int64s
    """Source ports tried while the routes between the two are not known."""
    attachment: Int64s
    """(NICs,) the attachment of each NIC."""


def labels(paths: int, probability: float) -> int:
    """How many source ports meet all of `paths` routes with this probability (R-Pingmesh, equation 1).

    Every port takes a route by chance, so one given route is missed by all n with (1 − 1/m)^n.

    >>> labels(4, 0.9), labels(16, 0.9), labels(1, 0.9)
    (13, 78, 1)
    """
    if paths <= 1:
        return 1
    n = np.log(1 - probability ** (1 / paths)) / np.log((paths - 1) / paths)
    return min(int(np.ceil(n)), _MOST_PORTS)


def of(c: Columns, inventory: Inventory, config: PlanConfig) -> Units:
    """All pairs of attachments whose routes are to be crossed."""
    leaves = len(c.leaves)
    lone = np.flatnonzero(c.leaf < 0)
    attachment = c.leaf.copy()
    attachment[lone] = leaves + np.arange(len(lone))
    names = of_names([*c.leaves, *(c.nics[i].id for i in lone.tolist())])
    pairs = [*_leaf_pairs(c), *_rings(c, lone, leaves, config.seed)]
    a, b = np.concatenate(pairs, axis=1) if pairs else np.empty((2, 0), np.int64)
    return Units(a, b, of_pair(names[a], names[b]), _blocks(c, a, b, inventory, config), attachment)


def _leaf_pairs(c: Columns) -> list[Int64s]:
    """Every two leaves of one group, smaller number first."""
    group_of = np.full(len(c.leaves), -1, dtype=np.int64)
    group_of[c.leaf[c.leaf >= 0]] = c.group[c.leaf >= 0]
    found = []
    for group in range(len(c.groups)):
        mine = np.flatnonzero(group_of == group)
        low, high = np.triu_indices(len(mine), 1)
        found.append(np.stack([mine[low], mine[high]]))
    return found


def _rings(c: Columns, lone: Int64s, first: int, seed: int) -> list[Int64s]:
    """Each lone NIC with its successor on its group's ring."""
    found = []
    ids = of_names([c.nics[i].id for i in lone.tolist()])
    for group in np.unique(c.group[lone]).tolist():
        mine = np.flatnonzero(c.group[lone] == group)
        order = mine[np.argsort(mixed(ids[mine], seed, _RING), kind="stable")] + first
        if len(order) > 1:
            ring = np.stack([order, np.roll(order, -1)])[:, : len(order) if len(order) > 2 else 1]
            found.append(np.sort(ring, axis=0))
    return found


def _blocks(c: Columns, a: Int64s, b: Int64s, inventory: Inventory, config: PlanConfig) -> Int64s:
    """(units,) source ports to try: by the cabling's count of routes, else by the assumed one."""
    usual = labels(config.paths_assumed, config.cover_probability)
    found = np.full(len(a), usual, dtype=np.int64)
    if not inventory.crossings:
        return found
    by_paths = {paths: labels(paths, config.cover_probability) for paths in set(inventory.crossings.values())}
    bare = [name.partition("|")[2] for name in c.leaves]
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if y < len(bare):
            key = (bare[x], bare[y]) if bare[x] < bare[y] else (bare[y], bare[x])
            paths = inventory.crossings.get(key, 0)
            found[i] = by_paths[paths] if paths > 0 else usual
    return found


class Block(NamedTuple):
    """Candidate sessions that try source ports between attachments; (candidates,) each."""

    src: Int64s
    dst: Int64s
    path: Int64s
    unit: Int64s


def tries(c: Columns, units: Units, chosen: Int64s, first: Int64s, many: Int64s, seed: int) -> Block:
    """For each of the units `chosen`, its block of sessions, every other one in the reverse direction.

    Each has a source port and a pair of NICs of its own, chosen by hash: a NIC more or less moves its share of them.
    `first` and `many` (NICs,) are the source ports of each NIC.
    """
    unit = np.repeat(chosen, units.block[chosen])
    if not len(unit):
        none = np.empty(0, np.int64)
        return Block(none, none, none, none)
    count = units.block[chosen]
    turn = np.arange(len(unit)) - np.repeat(np.cumsum(count) - count, count)
    odd = turn % 2 == 1
    near = np.where(odd, units.b[unit], units.a[unit])
    far = np.where(odd, units.a[unit], units.b[unit])
    pick = _Picker(c, units.attachment)
    src, dst = pick(near, units.id[unit], turn), pick(far, units.id[unit], turn)
    start = mixed(units.id[unit], seed, _PORT) % many[src].astype(np.uint64)
    path = first[src] + (start.astype(np.int64) + turn // 2) % many[src]
    apart = c.host[src] != c.host[dst]
    return Block(src[apart], dst[apart], path[apart], unit[apart])


class _Picker:
    """Chooses one of an attachment's NICs by rendezvous hashing."""

    def __init__(self, c: Columns, attachment: Int64s) -> None:
        self._ids = of_names([nic.id for nic in c.nics])
        self._order = np.argsort(attachment, kind="stable")
        self._count = np.bincount(attachment)
        self._first = np.cumsum(self._count) - self._count

    def __call__(self, attachment: Int64s, unit: UInt64s, turn: Int64s) -> Int64s:
        chance = mixed(unit, turn, _NIC)
        best = np.full(len(attachment), -1, dtype=np.int64)
        least = np.full(len(attachment), np.iinfo(np.uint64).max, dtype=np.uint64)
        for k in range(int(self._count[attachment].max(initial=0))):
            row = np.flatnonzero(self._count[attachment] > k)
            nic = self._order[self._first[attachment[row]] + k]
            value = mixed(self._ids[nic], chance[row])
            better = value <= least[row]
            best[row[better]], least[row[better]] = nic[better], value[better]
        return best
