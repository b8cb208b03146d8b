"""A leaf that loses as much as one dead uplink of several that its packets are sprayed over.

Where each packet takes an uplink of its own, a dead one loses the n-th part of all in a direction, whatever the path:
no path tells which it is, but the share tells that one passes nothing. Such a loss lasts where somebody believes the
link to be alive, or routing would have left it out. What is gray by nature is hardly ever so much, and just that much.
Of a dead spine the same holds for all leaves together (`one_spine`).

Which of them it is, traces tell in the end: each shows links by which its packets came. One of several is dead, and by
all others some packet has come since (`the_dead_one`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.detections import Detection
from sdfstream.detect.gray.known import KnownLosses
from sdfstream.detect.gray.lossy import LossySubject
from sdfstream.detect.gray.spines import between_leaves, is_one_of_spines, spines
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.localise import Location
from sdfstream.detect.runs import LONG_RUN
from sdfstream.records.fabric import Topology, direction_id, link_id
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import NS_PER_S

SPRAYED: Final = "sprayed-loss-share"
"""Evidence: what round trips lose whose packets are sprayed over the dead one and others."""
_UPLINKS: Final = (3, 8)
"""Of fewer, so great a share is lost that it may be anything; of more, so small a one that it may be gray."""
MOST_UPLINKS: Final = 64
"""Of so many traces still tell one that is dead from what is gray."""
_CHANCE: Final = 0.05
"""That by one of many that live no packet came is no more likely than this."""
_SIGMAS: Final = 3.0
_AS_MUCH: Final = 0.05
"""Of the share, beside chance: what else is lost."""
_PRECISE: Final = 0.15
"""Of the share: its error is at most so much."""
_TRACED_NS: Final = 3 * NS_PER_S
"""A trace is told so long after its packets at most, where some hops do not answer at once."""


def which_is_dead(cabling: Cabling, lossy: LossySubject, seen: KnownLosses) -> int:
    """Note the one uplink, or spine, of what loses that passes nothing; of how many it is one while that is not known.

    0: it is known, or none seems dead. Only what leaves the leaf counts, and only where packets are sprayed do traces
    of any path show each link in turn.
    """
    topology, subject = cabling.topology, lossy.location.subject
    if subject.type != "switch":
        return 0
    slots, counts = lossy.slots[between_leaves(cabling, cabling.sessions.count)[lossy.slots]], lossy.counts(seen)
    events, probes = int(counts.events[slots].sum()), int(counts.probes[slots].sum())
    sprayed = all(cabling.traced.is_sprayed(c) for c in np.unique(cabling.sessions.table["dscp"][slots]).tolist())
    if lossy.dead is None and sprayed and uplinks_of_one_dead(topology, subject, events, probes, MOST_UPLINKS):
        passed_ns, share = cabling.traced.passed_ns, events / probes
        lossy.dead = the_dead_one(topology, lossy.location, passed_ns, lossy.since_ns, share)
    return 0 if lossy.dead is not None else uplinks_of_one_dead(topology, subject, events, probes)


def uplinks_of_one_dead(topology: Topology, subject: Subject, events: int, probes: int, most: int = _UPLINKS[1]) -> int:
    """The number of a leaf's uplinks where it lost what one of them is given, one way or both ways; 0: it did not.

    Of one of the spines: their number, where so much is lost as one of them is given.

    Parameters
    ----------
    topology : Topology
    subject : Subject
        What loses.
    events, probes : int
        Loss events over it, of so many probes that were answered or count as an event (`runs`).
    most : int
        Of more nothing is said.
    """
    if not probes:
        return 0
    if is_one_of_spines(topology, subject):
        uplinks = len(spines(topology))
    else:
        uplinks = len(topology.graph.get(subject.id, ())) if subject.id in topology.leaves else 0
    if not _UPLINKS[0] <= uplinks <= most:
        return 0
    share = events / probes
    error = _SIGMAS * math.sqrt(share * (1.0 - share) / probes)
    for lost in _lost_of(uplinks):
        expected = event_share(lost)
        if abs(share - expected) <= error + _AS_MUCH * expected and error <= _PRECISE * expected:
            return uplinks
    return 0


def the_dead_one(
    topology: Topology, lossy: Location, passed_ns: Mapping[str, Sequence[int]], since_ns: int, share: float
) -> Location | None:
    """The one uplink, or spine, by which no packet of a trace came since; None: not all others are known to pass some.

    Parameters
    ----------
    topology : Topology
    lossy : Location
        What loses as `uplinks_of_one_dead` has it: a leaf, or one of the spines.
    passed_ns : mapping
        Directions ``a->b`` to the bus times of the last traces with a packet that came by them.
    since_ns : int
        When the loss began.
    share : float
        Loss events for each probe that counts.
    """
    spine = is_one_of_spines(topology, lossy.subject)
    above = spines(topology) if spine else topology.graph.get(lossy.subject.id, [])
    below = sorted(topology.leaves) if spine else [lossy.subject.id]
    if len(set(above)) < len(above):
        return None  # parallel cables: an address is one cable's, a name both's

    def came(names: Sequence[str]) -> int:
        return sum(at_ns > since_ns + _TRACED_NS for name in names for at_ns in passed_ns.get(name, ()))

    up = {s: [direction_id(name, s) for name in below] for s in above}
    down = {s: [direction_id(s, name) for name in below] for s in above}
    out, into = ({s: came(each[s]) for s in above} for each in (up, down))
    once, twice = (event_share(x) for x in _lost_of(len(above)))
    both = abs(share - twice) < abs(share - once)
    counts = {s: out[s] + into[s] if both else min(out[s], into[s]) for s in above}
    dead = [s for s, n in counts.items() if not n]
    if len(dead) != 1 or _by_chance(len(above), sum(counts.values())) > _CHANCE:
        return None
    (one,) = dead
    directions = [name for n, names in ((out[one], up[one]), (into[one], down[one])) if not n for name in names]
    known = both or len(directions) == len(below)
    subject = Subject("switch", one) if spine else Subject("link", link_id(lossy.subject.id, one))
    each = round(lossy.probability / (1 if known else len(directions)), 6)
    suspects = [(name, each) for name in directions]
    return replace(lossy, subject=subject, directions=directions, direction_known=known, suspects=suspects)


def _by_chance(uplinks: int, came: int) -> float:
    """How likely by one of so many no packet came if all live; 0 of few: what is lost tells that one does not.

    >>> _by_chance(4, 3), round(_by_chance(16, 92), 3)
    (0.0, 0.042)
    """
    return 0.0 if uplinks <= _UPLINKS[1] else uplinks * (1.0 - 1.0 / uplinks) ** came


def names_the_dead(found: Detection, former: Detection) -> bool:
    """Whether a loss that was told of a leaf, or of one of the spines, is the one of the link or spine `found` now."""
    if found.kind != "loss" or found.cause != "link-failure" or former.kind != "loss":
        return False
    ends = found.subject.id.split("--") if found.subject.type == "link" else [CORE]
    return former.subject.type == "switch" and former.subject.id in ends


def share_evidence(lossy: LossySubject, where: str, normal: float) -> tuple[Evidence, ...]:
    """What share is lost, with bounds, and what is normal: of one that is dead its own, and that of all round trips.

    `where` are the directions at fault.
    """
    share, low, high = lossy.shares()
    sprayed: tuple[Evidence, ...] = ()
    if lossy.dead is not None:
        over = " ".join(lossy.location.directions)
        sprayed = (Evidence(SPRAYED, share, "1", over), Evidence(f"{SPRAYED}-high", high, "1", over))
        share, low, high = 1.0, round(low / share, 6), 1.0
    return (
        Evidence("loss-share", share, "1", where, round(normal, 6)),
        Evidence("loss-share-low", low, "1", where),
        Evidence("loss-share-high", high, "1", where),
        *sprayed,
    )


def as_if_dead(topology: Topology, subject: Subject, uplinks: int) -> str:
    """The end of a finding's detail, of what `uplinks_of_one_dead` found, or of the one that is known."""
    if not uplinks:
        return ", as if it passed nothing: traces came by each of the others since, by it none"
    which = f"the {uplinks} spines" if is_one_of_spines(topology, subject) else f"its {uplinks} uplinks"
    return f", as if one of {which} passed nothing"


def _lost_of(uplinks: int) -> tuple[float, float]:
    """Share of round trips lost where one of so many passes nothing one way, and where it passes nothing either way."""
    once = 1.0 / uplinks
    return once, 1.0 - (1.0 - once) ** 2


def event_share(lost: float) -> float:
    """Loss events for each probe that counts, where a share `lost` of round trips fails, each by itself.

    Several in a row are one event, and from `LONG_RUN` on none.

    >>> round(event_share(0.01), 4), round(event_share(0.4375), 3)
    (0.0099, 0.286)
    """
    events = lost * (1.0 - lost ** (LONG_RUN - 1))
    return events / (1.0 + events)
