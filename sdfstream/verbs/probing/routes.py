"""Where a probe goes: path selector and class as a queue pair's address takes them, on RoCEv2 and on InfiniBand.

On RoCEv2 the selector is the UDP source port, given by the flow label (`verbs.udp_port`), and the class the traffic
class octet. On InfiniBand (IBTA volume 1, sections 3.5.10 and 7.11) a port with a LID mask count (LMC) of k answers to
2^k consecutive LIDs, to each of which the subnet manager may give a path of its own: the selector is the LIDs' low
bits. The class is a service level, which the subnet manager maps to virtual lanes.

The InfiniBand half is **not yet run on hardware**.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from sdfstream.verbs.udp_port import flow_label

HOP_LIMIT: Final = 64
"""What a kernel with its defaults makes of any wish: it resolves RoCEv2 addresses by its own routes (Linux,
``ib_resolve_unicast_gid_dmac``). 64 − TTL on arrival counts routers, where other probes have 255."""
MOST_LMC: Final = 7
_FIRST_MULTICAST_LID: Final = 0xC000


@dataclass(frozen=True, slots=True)
class RoceRoute:
    """The address of a RoCEv2 packet."""

    gid: str
    flow_label: int
    traffic_class: int
    hop_limit: int = HOP_LIMIT


@dataclass(frozen=True, slots=True)
class InfiniBandRoute:
    """The address of an InfiniBand packet within a subnet."""

    dlid: int
    source_path_bits: int
    service_level: int


def roce_route(gid: str, source_port: int, tos: int) -> RoceRoute:
    """To the port with this GID, with this UDP source port and TOS octet.

    Raises
    ------
    ValueError
        RoCEv2 does not use this source port.
    """
    return RoceRoute(gid, flow_label(source_port), tos)


def infiniband_route(lid: int, lmc: int, selector: int, dscp: int, levels: Mapping[int, int]) -> InfiniBandRoute:
    """To the port with this base LID, by the `selector`-th of its paths.

    Parameters
    ----------
    lid, lmc : int
        The far port's base LID, whose low `lmc` bits are zero, and its LID mask count.
    selector : int
        0 to 2^lmc − 1; our own port's LID gets the same bits, as far as it has them.
    dscp : int
    levels : mapping of DSCP to service level
        As the fabric's operator has set them; DSCPs that are not named have level 0.

    Raises
    ------
    ValueError
        No unicast LID, an LMC beyond 7, a selector that the port has no LID for, a level beyond 15.

    >>> infiniband_route(0x40, 2, 3, 26, {26: 3})
    InfiniBandRoute(dlid=67, source_path_bits=3, service_level=3)
    """
    level = levels.get(dscp, 0)
    if not 0 <= lmc <= MOST_LMC or not 0 < lid < _FIRST_MULTICAST_LID or lid & ((1 << lmc) - 1):
        raise ValueError(f"LID {lid:#x} with LMC {lmc} is not a port's base LID")
    if not 0 <= selector < 1 << lmc:
        raise ValueError(f"selector {selector}: LMC {lmc} gives paths 0 to {(1 << lmc) - 1}")
    if not 0 <= level <= 15:
        raise ValueError(f"service level {level} of DSCP {dscp}: levels are 0 to 15")
    return InfiniBandRoute(lid | selector, selector, level)
