"""NICs of an inferred leaf that all fell silent at once: its switch, not two or more NICs that died together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.inferred.hidden import leaf_name, probed_between
from sdfstream.detect.localise import Location
from sdfstream.numeric.graph import components
from sdfstream.records.fabric import host_of
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_S, Int64s

_AT_ONCE_NS: Final = 2 * NS_PER_S
"""Between the first silences of NICs that one switch takes along: some are probed once a second."""


def whole_leaves(cabling: Cabling, found: Sequence[Location], since_ns: Int64s) -> list[Location]:
    """`found` with one switch in place of all NICs, two or more, of a leaf that is known by round trips alone.

    So it is of NICs of several groups between which nobody probes, as they may share a switch: one switch is likelier
    than several NICs, of each group all. Not of NICs of one host, which share more than a switch.
    `since_ns`, (sessions,): when each fell silent. NICs that died one after the other stay what they are.
    """
    nics = [x for x in found if x.subject.type == "nic"]
    if len(nics) < 2:
        return list(found)
    group, names = cabling.groups(), cabling.sessions.nics
    result, silent = list(found), {x.subject.id for x in nics}
    whole = [
        one
        for one in np.unique(group[group >= 0]).tolist()
        if {names.list[nic] for nic in np.flatnonzero(group == one).tolist()} <= silent
    ]
    for leaf in _perhaps_one(cabling, group, np.array(whole, np.int64)):
        members = {names.list[nic] for nic in np.flatnonzero(np.isin(group, leaf)).tolist()}
        mine = [x for x in nics if x.subject.id in members]
        began_ns = [int(since_ns[x.slots].min()) for x in mine]
        if len(members) > 1 and max(began_ns) - min(began_ns) <= _AT_ONCE_NS:
            joined = _leaf(sorted(members), mine)
            result = [joined if x is mine[0] else x for x in result if x not in mine[1:]]
    return result


def _perhaps_one(cabling: Cabling, group: Int64s, silent: Int64s) -> list[Int64s]:
    """The `silent` groups, those together that may all share one switch; where not all of them may, each alone."""
    if not silent.size:
        return []
    nics = cabling.sessions.nics.list
    hosts = [{host_of(nics[nic]) for nic in np.flatnonzero(group == one).tolist()} for one in silent.tolist()]
    between = probed_between(cabling.sessions, group, silent)
    between |= np.array([[bool(one & other) for other in hosts] for one in hosts])
    a, b = np.nonzero(~between)
    leaves: list[Int64s] = []
    component = components(silent.size, a, b)
    for one in np.unique(component).tolist():
        mine = np.flatnonzero(component == one)
        apart = int(between[np.ix_(mine, mine)].sum()) > mine.size
        leaves += [silent[[i]] for i in mine.tolist()] if apart else [silent[mine]]
    return leaves


def _leaf(members: list[str], nics: Sequence[Location]) -> Location:
    name = leaf_name(members[0])
    probability = min(x.probability for x in nics)
    return replace(
        nics[0],
        subject=Subject("switch", name),
        directions=[name],
        direction_known=True,
        share=max(x.share for x in nics),
        slots=np.concatenate([x.slots for x in nics]),
        suspects=[(name, probability)],
        probability=probability,
        path_directions=[direction for x in nics for direction in x.path_directions],
        members=tuple(members),
        beside=tuple(members),
    )
