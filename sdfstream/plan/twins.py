"""A RoCEv2 session beside the UDP ones of a pair of NICs: silence of it alone tells a fault that UDP never meets."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.plan.config import PlanConfig
from sdfstream.plan.inventory import Columns
from sdfstream.records.units import Float64s, Int64s

_FIRST_PORT: Final = 0xC000
"""RoCEv2 leaves by this source port or a higher one."""


class Twins(NamedTuple):
    """RoCEv2 sessions, (n,) each; NIC numbers of `Columns`."""

    src: Int64s
    dst: Int64s
    path: Int64s
    dscp: Int64s
    unpaid: int
    """Left out for want of budget."""


def twins(
    c: Columns, src: Int64s, dst: Int64s, path: Int64s, dscp: Int64s, room_pps: Float64s, config: PlanConfig
) -> Twins:
    """One RoCEv2 session for each ordered pair among the UDP sessions (n,) whose NICs both have an RDMA device.

    Parameters
    ----------
    c : Columns
    src, dst, path, dscp : (n,) int64
        The UDP sessions; of a pair's the last one's class and port are taken, coverage's before clocks'.
    room_pps : (hosts,) float64
        What each host may send beside them.
    config : PlanConfig
    """
    none = np.empty(0, dtype=np.int64)
    if "rocev2" not in config.transports:
        return Twins(none, none, none, none, 0)
    able = np.array([nic.rdma for nic in c.nics], dtype=np.bool_)
    pairs: dict[tuple[int, int], int] = {}
    for i in np.flatnonzero(able[src] & able[dst]).tolist():
        pairs[int(src[i]), int(dst[i])] = i
    left_pps, rate_hz = room_pps.copy(), config.cover_rate_hz
    chosen: list[int] = []
    for (near, far), i in sorted(pairs.items()):
        hosts = c.host[[near, far]]
        if (left_pps[hosts] + 1e-9 >= rate_hz).all():
            left_pps[hosts] -= rate_hz
            chosen.append(i)
    rows = np.array(chosen, dtype=np.int64)
    ports = _FIRST_PORT | (path[rows] & (_FIRST_PORT ^ 0xFFFF))
    return Twins(src[rows], dst[rows], ports, dscp[rows], len(pairs) - len(chosen))
