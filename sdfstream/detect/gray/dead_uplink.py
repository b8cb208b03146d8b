"""A leaf that loses as much as one dead uplink of several that its packets are sprayed over.

Where each packet takes an uplink of its own, a dead one loses the n-th part of all in a direction, whatever the path:
no path tells which it is, but the share tells that one passes nothing. Such a loss lasts where somebody believes the
link to be alive, or routing would have left it out. What is gray by nature is hardly ever so much, and just that much.
Of a dead spine the same holds for all leaves together (`one_spine`).
"""

from __future__ import annotations

import math
from typing import Final

from sdfstream.detect.gray.spines import is_one_of_spines, spines
from sdfstream.detect.runs import LONG_RUN
from sdfstream.records.fabric import Topology
from sdfstream.records.finding import Subject

_UPLINKS: Final = (3, 8)
"""Of fewer, so great a share is lost that it may be anything; of more, so small a one that it may be gray."""
_SIGMAS: Final = 3.0
_AS_MUCH: Final = 0.05
"""Of the share, beside chance: what else is lost."""
_PRECISE: Final = 0.15
"""Of the share: its error is at most so much."""


def uplinks_of_one_dead(topology: Topology, subject: Subject, events: int, probes: int) -> int:
    """The number of a leaf's uplinks where it lost what one of them is given, one way or both ways; 0: it did not.

    Of one of the spines: their number, where so much is lost as one of them is given.

    Parameters
    ----------
    topology : Topology
    subject : Subject
        What loses.
    events, probes : int
        Loss events over it, of so many probes that were answered or count as an event (`runs`).
    """
    if not probes:
        return 0
    if is_one_of_spines(topology, subject):
        uplinks = len(spines(topology))
    else:
        uplinks = len(topology.graph.get(subject.id, ())) if subject.id in topology.leaves else 0
    if not _UPLINKS[0] <= uplinks <= _UPLINKS[1]:
        return 0
    share = events / probes
    error = _SIGMAS * math.sqrt(share * (1.0 - share) / probes)
    once = 1.0 / uplinks
    for lost in (once, 1.0 - (1.0 - once) ** 2):
        expected = event_share(lost)
        if abs(share - expected) <= error + _AS_MUCH * expected and error <= _PRECISE * expected:
            return uplinks
    return 0


def as_if_dead(topology: Topology, subject: Subject, uplinks: int) -> str:
    """The end of a finding's detail, of what `uplinks_of_one_dead` found."""
    which = f"the {uplinks} spines" if is_one_of_spines(topology, subject) else f"its {uplinks} uplinks"
    return f", as if one of {which} passed nothing"


def event_share(lost: float) -> float:
    """Loss events for each probe that counts, where a share `lost` of round trips fails, each by itself.

    Several in a row are one event, and from `LONG_RUN` on none.

    >>> round(event_share(0.01), 4), round(event_share(0.4375), 3)
    (0.0099, 0.286)
    """
    events = lost * (1.0 - lost ** (LONG_RUN - 1))
    return events / (1.0 + events)
