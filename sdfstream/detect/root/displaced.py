"""Queues where the traffic of a dead link or switch goes now: the outage's doing, told with it.

What a dead uplink of a leaf carried takes its other uplinks, in both directions; what a dead spine carried takes the
links of all its leaves. Traffic of a dead leaf has nowhere to go. A queue there is information while the outage is
reported, for as long as jobs and routes may take to spread what they send; one that stands for longer lacks capacity.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sdfstream.detect.inferred.hidden import CORE
from sdfstream.records.fabric import Topology, link_id
from sdfstream.records.units import NS_PER_S

_SPREADS_NS: Final = 60 * NS_PER_S


def is_displaced(directions: Sequence[str], dead: Collection[str], topology: Topology, age_ns: int) -> bool:
    """Whether a queue may stand only since something is dead.

    Parameters
    ----------
    directions : sequence of str
        ``a->b``, where the queue may stand.
    dead : collection of str
        Links ``a--b`` and switches that are reported dead.
    topology : Topology
    age_ns : int
        Of the queue.
    """
    if not dead or age_ns >= _SPREADS_NS:
        return False
    fewer = {switch for name in dead for switch in _short_of_links(name, topology)}
    links = [direction.split("->") for direction in directions]
    between = [ends for ends in links if len(ends) == 2 and not topology.nics.keys() & ends]
    return bool(between) and all(not fewer.isdisjoint(ends) and link_id(*ends) not in dead for ends in between)


def _short_of_links(name: str, topology: Topology) -> Sequence[str]:
    """Switches whose traffic has to take other links, since `name` is dead: the lower end, where that is known."""
    ends = name.split("--")
    if len(ends) == 2:
        return [end for end in ends if end in topology.leaves] or [end for end in ends if end != CORE]
    return () if name in topology.leaves else topology.graph.get(name, ())
