"""The spines of declared cabling together, where every leaf is cabled to each: a path between leaves crosses one.

Where packets are sprayed no path tells which of them loses, so that they are named together, as the core.
"""

from __future__ import annotations

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject
from sdfstream.records.units import Bools, Int64s


def spines(topology: Topology) -> list[str]:
    """The switches that every leaf is cabled to, if leaves are cabled to no others; else none."""
    above = {tuple(sorted(set(topology.graph.get(leaf, ())))) for leaf in topology.leaves}
    return list(above.pop()) if len(above) == 1 else []


def is_one_of_spines(topology: Topology, subject: Subject) -> bool:
    """Whether a subject stands for one of the declared spines, nobody knows which (`one_spine`)."""
    return subject.id == CORE and bool(topology.leaf_of)


def leaves_of(cabling: Cabling, slots: Int64s) -> tuple[Int64s, Int64s]:
    """(slots,) number of the leaf at which each session begins, and at which it ends; −1: not known."""
    topology, table = cabling.topology, cabling.sessions.table
    number = {leaf: i for i, leaf in enumerate(sorted(topology.leaves))}
    each = [number.get(topology.leaf_of.get(nic, ""), -1) for nic in cabling.sessions.nics.list]
    of_nic = np.array([*each, -1], np.int64)  # the last one of a session that is gone
    return of_nic[table["src"][slots]], of_nic[table["dst"][slots]]


def between_leaves(cabling: Cabling, sessions: int) -> Bools:
    """(sessions,) whether each goes from one leaf to another."""
    near, far = leaves_of(cabling, np.arange(sessions))
    result: Bools = (near >= 0) & (far >= 0) & (near != far)
    return result
