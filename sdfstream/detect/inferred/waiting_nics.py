"""NICs that seem to be slow and wait for what lies beyond them, where no cabling is known.

A NIC most of whose paths happen to cross an inferred link explains them better than the link does, which others of its
paths do not cross. But what waits as long as the link's other paths do, and may cross it, waits there. Only paths
between leafmates, which cross the NIC's port and no link of the leaf, show that it is the port. And all NICs of a leaf
that are told to pause wait for their leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.inferred.hidden import CORE, is_inferred
from sdfstream.detect.inferred.leaves import whole_leaves
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.controlled import sent_by_nics, side_of
from sdfstream.detect.root.held_up import HELD_UP
from sdfstream.records.units import ABSENT_NS, Float64s, Int64s

_ALIKE: Final = 1.3
"""What waits in one queue waits for this many times as long at most."""

WaitOf = Callable[[Int64s], Float64s]
"""Mean wait of directed paths, ns."""


def under_links(cabling: Cabling, found: Sequence[Location], wait_ns: WaitOf) -> list[Location]:
    """`found` without the queues at NICs that one of the inferred links explains; those links with the NICs' paths.

    Parameters
    ----------
    cabling : Cabling
    found : sequence of Location
        Queues of one class.
    wait_ns : callable
        Mean waits of directed paths since they wait, (n,) → (n,).
    """
    links = [x for x in found if is_inferred(x.subject) and x.beside and len(x.directions) == 1]
    nics = [x for x in found if x.subject.type == "nic"]
    if not links or not nics:
        return list(found)
    result = list(found)
    for nic in nics:
        link = next((x for x in links if _explains(cabling, x, nic, wait_ns)), None)
        if link is not None:
            result.remove(nic)
            result[result.index(link)] = joined = _joined(link, nic)
            links[links.index(link)] = joined
    return result


def paused_leaves(
    cabling: Cabling, delays: DelayBaselines, found: list[Location], paused: Sequence[str]
) -> list[Location]:
    """`found` with a switch in place of all NICs of an inferred leaf that it tells to wait: a queue behind it."""
    nics = [x for x in found if x.subject.id in paused and x.subject.type == "nic" and sent_by_nics(x.directions)]
    if len(nics) < HELD_UP:
        return found
    since_ns = delays.table["since_ns"].reshape(-1, 2)
    first_ns = np.where(since_ns == ABSENT_NS, np.iinfo(np.int64).max, since_ns).min(axis=1)
    return [*(x for x in found if x not in nics), *whole_leaves(cabling, nics, first_ns)]


def _explains(cabling: Cabling, link: Location, nic: Location, wait_ns: WaitOf) -> bool:
    """Whether all that waits for the NIC may cross the link, and waits as what surely does."""
    side = "tx" if link.directions[0].endswith(f"->{CORE}") else "rx"
    if nic.subject.id not in link.beside or side_of(nic.directions) != side or _among_leafmates(cabling, link, nic):
        return False
    mine, theirs = (float(np.median(wait_ns(x.directed_paths()))) for x in (nic, link))
    return min(mine, theirs) > 0 and max(mine, theirs) <= _ALIKE * min(mine, theirs)


def _among_leafmates(cabling: Cabling, link: Location, nic: Location) -> bool:
    """Whether any of the NIC's waiting paths leads between NICs of the link's leaf."""
    sessions = cabling.sessions
    beside = np.array([sessions.nics.find(name) for name in link.beside], np.int64)
    ends = (np.isin(sessions.table[end][nic.slots], beside) for end in ("src", "dst"))
    return bool(np.logical_and(*ends).any())


def _joined(link: Location, nic: Location) -> Location:
    return replace(
        link,
        slots=np.concatenate([link.slots, nic.slots]),
        path_directions=[*link.path_directions, *nic.path_directions],
    )
