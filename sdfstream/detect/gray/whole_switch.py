"""A switch whose paths all lose alike, whichever of its cables each of them takes: no one cable explains that.

Where routes hold, a lossy cable of a switch costs some of its paths much and others nothing, so that a switch is named
only once paths over its other cables have had the time to show it. Where packets are sprayed all paths lose the same
share from the first moment on, and that time tells nothing more.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.gray.spines import is_one_of_spines
from sdfstream.detect.localise import Location
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.units import Float64s, Int64s

CLEAR: Final = 0.9
"""A subject that is right with this probability, given that one of its suspects is, is named."""
_SURELY: Final = 0.5
"""Of a route: it crosses a cable with more than this probability."""
_SEPARABLE: Final = 4.0
"""If half of the paths lost twice as much and half nothing, losses would vary by so many sigmas more than chance."""
LESS: Final = 0.25
"""Of what is lost over a switch, for each probe: what does not cross it loses so much at most, or something wider may
be the cause."""
_ALIKE: Final = 1.0
"""By so many sigmas more than chance they may vary."""


def says_no_more(found: Location, standing: Location) -> bool:
    """Whether what was found is some link of a switch that stands, nobody knows which: it is no better answer.

    Where packets are sprayed, a long window that still holds the time before the loss fits any of its links as well.
    """
    switch = standing.subject
    if switch.type != "switch" or found.subject.type == "link" or standing.probability < CLEAR:
        return False
    several = len(found.directions) > 1 and found.probability < CLEAR
    return several and all(switch.id in name.split("->") for name in found.directions)


def all_lose_alike(slots: Int64s, counts: LossCounts, others: Float64s) -> bool:
    """Whether these sessions lose the same share, as far as that can be told, and it can be told.

    Parameters
    ----------
    slots : (n,) int64
        Sessions with probes.
    counts : LossCounts
    others : (sessions,) float64
        Share of probes that all else loses.
    """
    events, probes = counts.events[slots], counts.probes[slots]
    expected = probes * (max(share_beyond(slots, counts, others), 0.0) + others[slots])
    if not slots.size or expected.mean() * np.sqrt(slots.size / 2) < _SEPARABLE:
        return False
    beyond = float(((events - expected) ** 2 / expected).sum() - slots.size) / float(np.sqrt(2 * slots.size))
    return beyond <= _ALIKE


def share_beyond(slots: Int64s, counts: LossCounts, others: Float64s) -> float:
    """Loss events of these sessions together for each probe, beyond what all else loses (`others`, as above)."""
    events, probes = counts.events[slots], counts.probes[slots]
    return float((events.sum() - (probes * others[slots]).sum()) / max(1, probes.sum()))


def is_sprayed(
    cabling: Cabling,
    location: Location,
    slots: Int64s,
    counts: LossCounts,
    others: Float64s,
    exposure: Float64s,
    limit: float,
) -> bool:
    """Whether a switch, or an inferred link, is clearly what loses, and as where packets are sprayed: all that cross it
    lose alike, and what does not loses much less.

    `exposure`, (sessions,): how often a round trip crosses it; the others as of `is_set_apart`.
    """
    named = location.subject.type == "switch" or bool(location.beside)
    if not named or location.probability < CLEAR or not all_lose_alike(slots, counts, others):
        return False
    there, beside = (share_beyond(np.flatnonzero(x), counts, np.zeros(x.size)) for x in (exposure > 0, exposure == 0))
    return beside <= LESS * there and is_set_apart(cabling, location, slots, counts, others, limit)


def is_set_apart(
    cabling: Cabling, location: Location, slots: Int64s, counts: LossCounts, others: Float64s, limit: float
) -> bool:
    """Whether it is shown already that not one of a switch's cables loses: where packets are sprayed at once.

    Of anything but a switch there is nothing to show, and of one of the spines it is shown with it (`one_spine`).
    `slots` are the sessions that cross it, `others` as above, `limit` as of `lose_beside_each_cable`.
    """
    switch = location.subject
    if switch.type != "switch" or is_one_of_spines(cabling.topology, switch):
        return True
    return all_lose_alike(slots, counts, others) and lose_beside_each_cable(
        cabling, switch.id, slots, counts, others, limit
    )


def lose_beside_each_cable(
    cabling: Cabling, switch: str, slots: Int64s, counts: LossCounts, others: Float64s, limit: float
) -> bool:
    """Whether what crosses a switch loses more than `limit` (log) allows beside each of its declared cables.

    Beside a cable are those of these sessions that do not surely cross it, in either direction.
    """
    ends = sorted(cabling.topology.neighbours.get(switch, ()))
    if not ends:
        return False
    element, sure = cabling.element[slots], cabling.weight[slots] > _SURELY
    for end in ends:
        both = cabling.numbers((f"{end}->{switch}", f"{switch}->{end}"))
        rest = slots[~(np.isin(element, both) & sure).any(axis=(1, 2))]
        lost, sent = int(counts.events[rest].sum()), int(counts.probes[rest].sum())
        if not sent:
            return False
        normal = float(np.clip((counts.probes[rest] * others[rest]).sum() / sent, 1e-9, 0.999))
        if float(log_tail_bound(lost, sent, normal)) > limit:
            return False
    return True
