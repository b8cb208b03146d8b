"""Several cables or NICs that are sick at once: their switch, their host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Subject

if TYPE_CHECKING:
    from sdfstream.detect.localise import Location

_MOST: Final = 0.5
"""Of a switch's cables more than this are its own failure."""
_NEARLY_ALL: Final = 0.8
"""Of loss: its shares show whether some cables fail or all, which are then alike."""
_ALIKE: Final = 2.0
"""The greatest share of loss is so many times the least."""
_UPLINKS: Final = 3
"""So few cables of a switch, all of them sick, may be as many faults."""


def whole_switches(cabling: Cabling, locations: list[Location], kind: str) -> list[Location]:
    """Sick cables that all end at one switch, most of its cables: the switch.

    Nearly all of them where they lose, or all those to other switches, alike: where packets are sprayed a loss of any
    is one of all, and no path tells which.
    """
    cables = [x for x in locations if x.subject.type in ("link", "nic")]
    if len(cables) < (3 if kind == "queue" else 2):
        return locations
    ends, most = [cabling.switches_of(x.subject) for x in cables], _NEARLY_ALL if kind == "loss" else _MOST
    for switch in sorted(set.intersection(*ends)):
        everyone = len(cabling.topology.neighbours.get(switch, ()))
        if kind == "queue" and not _one_sided(switch, cables):
            continue
        if len(cables) > most * everyone > 0 or (kind == "loss" and _all_uplinks(cabling, switch, cables)):
            whole = _joined(Subject("switch", switch), cables, [(switch, 1.0)])
            return [whole] + [x for x in locations if x not in cables]
    return locations


def _one_sided(switch: str, cables: list[Location]) -> bool:
    """Whether all queues stand at the switch's own ports, or all at its neighbours' ports to it.

    Its own: it sends more there than they carry. Its neighbours': it pauses them. Traffic that fills one link may fill
    those before it as well; queues are at both sides of the switch then, which is not to blame.
    """
    sides = {direction.partition("->")[0] == switch for x in cables for direction in x.directions}
    return len(sides) == 1


def _all_uplinks(cabling: Cabling, switch: str, cables: list[Location]) -> bool:
    """Whether these are all cables between a switch and others, and lose alike."""
    others = {end for end in cabling.topology.neighbours.get(switch, ()) if end not in cabling.topology.leaf_of}
    reached = {end for x in cables for end in x.subject.id.split("--") if x.subject.type == "link"} - {switch}
    shares = [x.share for x in cables]
    return len(others) >= _UPLINKS and reached == others and max(shares) <= _ALIKE * min(shares)


def whole_hosts(cabling: Cabling, locations: list[Location]) -> list[Location]:
    """All NICs of a host that has several, sick at once: the host."""
    nics: dict[str, list[Location]] = {}
    for found in locations:
        if found.subject.type == "nic":
            nics.setdefault(host_of(found.subject.id), []).append(found)
    everyone = cabling.sessions.nics.list
    for host, mine in nics.items():
        sick = {x.subject.id for x in mine}  # one NIC may be located twice, by what it sends and by what it receives
        if len(sick) > 1 and len(sick) == sum(host_of(nic) == host for nic in everyone):
            whole = _joined(Subject("host", host), mine, [s for x in mine for s in x.suspects])
            whole.members = tuple(dict.fromkeys(x.subject.id for x in mine))
            locations = [whole if x is mine[0] else x for x in locations if x not in mine[1:]]
    return locations


def _joined(subject: Subject, elements: list[Location], suspects: list[tuple[str, float]]) -> Location:
    """One statement in place of several."""
    return replace(
        elements[0],
        subject=subject,
        directions=list(dict.fromkeys(d for x in elements for d in x.directions)),
        direction_known=all(x.direction_known for x in elements),
        share=max(x.share for x in elements),
        slots=np.concatenate([x.slots for x in elements]),
        suspects=suspects,
        probability=min(x.probability for x in elements),
        path_directions=[w for x in elements for w in x.path_directions],
        members=(),
        beside=(),
        alive=0,
    )
