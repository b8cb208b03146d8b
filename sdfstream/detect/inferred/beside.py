"""Whether a NIC's neighbours wait as it does, where no cabling is known: then what they share is full, not the NIC.

Of a NIC that probes none of its leafmates all paths cross the links of its leaf. Where these are fewer than the NICs
below (two uplinks of four, say) a surge fills them, and every path of every NIC there waits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.root.port_rates import Side
from sdfstream.records.units import Bools, Int64s

_SO_MANY: Final = 0.4
"""Of the neighbours' paths that leave (or reach) the leaf; one full link of two holds up half of them."""


def neighbours_wait(cabling: Cabling, delays: DelayBaselines, nic: str, side: Side, at_ns: int) -> bool:
    """Whether paths of NICs that share a switch with `nic`, as round trips group them, wait on that side as well.

    On the sending side paths that leave the switch, on the receiving side those that reach it; else both.
    """
    group, number = cabling.groups(), cabling.sessions.nics.find(nic)
    if cabling.topology.leaf_of or number < 0 or group[number] < 0:
        return False
    n = cabling.sessions.count
    src, dst = cabling.sessions.table["src"][:n], cabling.sessions.table["dst"][:n]
    start, stop = np.stack([src, dst], axis=1).reshape(-1), np.stack([dst, src], axis=1).reshape(-1)
    out, into = (_of_neighbours(group, number, *ends) for ends in ((start, stop), (stop, start)))
    beside = delays.current(at_ns)[: 2 * n] & {"tx": out, "rx": into}.get(side, out | into)
    return int((delays.slow(at_ns)[: 2 * n] & beside).sum()) > _SO_MANY * int(beside.sum())


def _of_neighbours(group: Int64s, nic: int, near: Int64s, far: Int64s) -> Bools:
    """Directed paths whose `near` end shares a switch with `nic`, and is not it, and whose `far` end does not."""
    grouped = np.append(group, -1)
    result: Bools = (grouped[near] == group[nic]) & (near != nic) & (grouped[far] != group[nic])
    return result
