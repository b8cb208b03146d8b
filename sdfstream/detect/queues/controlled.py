"""Queues at NICs that congestion control holds where it should: information, for a busy NIC is not a sick one.

Jobs send as fast as their NICs can, so at every step of theirs queues stand at NICs, or at all NICs of a switch. Where
senders yield to marks (DCQCN, DCTCP) such a queue lies between the marking thresholds and few packets are marked: all
get nearly what they ask for. In a NIC's own sending queue nothing marks; while nobody pauses the NIC, what waits there
waits for its own host.

Worth a warning is a queue beyond what marking should allow, one at which most packets are marked (many senders ask for
far more than the NIC takes), one of which nothing is known to be marked, and one that slows a queue pair
(`slow_pairs`). So is any queue on a link of the fabric: there flows meet that another way might have held apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from sdfstream.detect.marks import MARKS_NS
from sdfstream.records.units import Float64s

LATE_MARKS_US: Final = 300.0
"""A queue of this length is beyond the upper marking threshold of any port from 10 Gbit/s on (400 kB take 320 µs)."""
_MARKED: Final = 0.5
"""Senders that ask for a tenth more than there is have few of their packets marked; at twice as much nearly all."""


def is_controlled(
    excess_us: float, marked: Float64s, directions: Sequence[str], age_ns: int, *, marking: bool, paused: bool
) -> bool:
    """Whether a queue is as long, and marked as little, as congestion control leaves it.

    Parameters
    ----------
    excess_us : float
        Delay above normal.
    marked : (paths,)
        Share of arrivals marked over the last `MARKS_NS`, of paths on which the queue stands; as it drains, of none.
    directions : sequence of str
        Where it stands.
    age_ns : int
        How long it has stood; marks before that are not its.
    marking : bool
        Whether the fabric is known to mark the queue's class.
    paused : bool
        Whether its NIC is being paused.
    """
    if excess_us >= LATE_MARKS_US:
        return False
    if sent_by_nics(directions):
        return not paused
    share = float(marked.mean()) if marked.size else 0.0
    return marking and share * MARKS_NS / min(max(age_ns, 1), MARKS_NS) < _MARKED


def side_of(directions: Sequence[str]) -> Literal["tx", "rx", "busier"]:
    """The side of a NIC at which a queue stands; of both, or of none that is known, the busier.

    >>> side_of(["h0/r0->l0"]), side_of(["h0/r0 rx"]), side_of(["l0->h0/r0", "h0/r0->l0"])
    ('tx', 'rx', 'busier')
    """
    sides = {"tx" if sent_by_nics([direction]) else "rx" for direction in directions}
    return "tx" if sides == {"tx"} else "rx" if sides == {"rx"} else "busier"


def sent_by_nics(directions: Sequence[str]) -> bool:
    """Whether all of these are what NICs send: such a queue stands in a host, and no switch could have marked it.

    >>> sent_by_nics(["h0/r0->l0", "h1/r0 tx"]), sent_by_nics(["h0/r0 rx"])
    (True, False)
    """
    return all("/" in direction.partition("->")[0] and not direction.endswith(" rx") for direction in directions)
