"""NICs of an inferred leaf that all fell silent at once: its switch, not two or more NICs that died together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.inferred.hidden import leaf_name
from sdfstream.detect.localise import Location
from sdfstream.records.finding import Subject
from sdfstream.records.units import NS_PER_S, Int64s

_AT_ONCE_NS: Final = 2 * NS_PER_S
"""Between the first silences of NICs that one switch takes along: some are probed once a second."""


def whole_leaves(cabling: Cabling, found: Sequence[Location], since_ns: Int64s) -> list[Location]:
    """`found` with one switch in place of all NICs, two or more, of a leaf that is known by round trips alone.

    `since_ns`, (sessions,): when each fell silent. NICs that died one after the other stay what they are.
    """
    nics = [x for x in found if x.subject.type == "nic"]
    if len(nics) < 2:
        return list(found)
    group, names = cabling.groups(), cabling.sessions.nics
    result = list(found)
    for one in np.unique(group[group >= 0]).tolist():
        members = {names.list[nic] for nic in np.flatnonzero(group == one).tolist()}
        mine = [x for x in nics if x.subject.id in members]
        began_ns = [int(since_ns[x.slots].min()) for x in mine]
        if len(members) < 2 or {x.subject.id for x in mine} != members or max(began_ns) - min(began_ns) > _AT_ONCE_NS:
            continue
        whole = _leaf(sorted(members), mine)
        result = [whole if x is mine[0] else x for x in result if x not in mine[1:]]
    return result


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
