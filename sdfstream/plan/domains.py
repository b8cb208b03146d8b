"""Which clocks can be joined: NICs reach one another within a group (a plane, or one rail of it) and not beyond.

A *domain* is a set of clocks any two of which share a group, so that a random graph over it can be probed edge by
edge. Where one group has everybody, that is one domain. Otherwise groups are taken, largest first, until all clocks of
a component are in one; two domains are joined by the clocks that are in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.numeric.graph import components
from sdfstream.records.units import Bools, Int64s

_FIRM = 2
"""Clocks that two domains must share so that none of them may fail."""


class Domain(NamedTuple):
    """Clocks any two of which can be joined, and the groups whose NICs may do it."""

    clocks: Int64s
    groups: Int64s


class Domains(NamedTuple):
    """How the clocks hang together."""

    all: list[Domain]
    islands: int
    """Components between which no NIC reaches another; 1 when everything can be joined."""
    joints: int
    """Domains that only one clock joins to the others."""


def split(has: Bools) -> Domains:
    """Domains of the clocks, where `has` (clocks, groups) is True where a clock has a NIC in a group."""
    clocks, groups = has.shape
    clock, group = np.nonzero(has)
    label = components(clocks + groups, clock.astype(np.int64), group.astype(np.int64) + clocks)
    found: list[Domain] = []
    islands = np.unique(label[:clocks])
    joints = 0
    for island in islands.tolist():
        members = np.flatnonzero(label[:clocks] == island)
        mine = np.flatnonzero(label[clocks:] == island)
        if has[np.ix_(members, mine)].all(axis=0).any():
            found.append(Domain(members, mine))
            continue
        domains, weak = _cover(has, members, mine)
        found += domains
        joints += weak
    return Domains(found, len(islands), joints)


def _cover(has: Bools, members: Int64s, groups: Int64s) -> tuple[list[Domain], int]:
    """Groups that together have all `members`, each sharing clocks with those before; and how many share only one."""
    waiting, left = np.zeros(has.shape[0], dtype=np.bool_), groups.tolist()
    waiting[members] = True
    covered = np.zeros_like(waiting)
    found: list[Domain] = []
    joints = 0
    while waiting.any():
        fresh = {g: int((has[:, g] & waiting).sum()) for g in left}
        shared = {g: int((has[:, g] & covered).sum()) for g in left}
        best = max(left, key=lambda g: (min(shared[g], _FIRM) if found else 0, fresh[g], -g))
        left.remove(best)
        if not fresh[best] and shared[best] == 0:
            continue
        joints += bool(found) and shared[best] < _FIRM
        found.append(Domain(np.flatnonzero(has[:, best]), np.array([best])))
        covered |= has[:, best]
        waiting &= ~has[:, best]
    return found, joints
