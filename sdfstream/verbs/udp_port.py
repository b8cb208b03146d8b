"""The UDP source port of a RoCEv2 flow, as Linux and the devices derive it from the IPv6 flow label.

    low = label & 0x3fff;  high = (label & 0xfc000) >> 14;  port = 0xc000 | (low ^ high)

A label of 0 stands for a hash of the two queue pairs' numbers, the same from either end. Drivers that take the label
(rxe, hns, irdma; mlx5 for address handles) share this formula, ``rdma_flow_label_to_udp_sport`` in
``include/rdma/ib_verbs.h``.
"""

from __future__ import annotations

from typing import Final

LEAST_PORT: Final = 0xC000
ROCE_PORT: Final = 4791
"""Destination port of every RoCEv2 packet."""
_LOW: Final = 0x3FFF
_LABEL: Final = 0xFFFFF
_GOLDEN_RATIO: Final = 0x61C8_8647


def source_port(label: int, own_qpn: int = 0, peer_qpn: int = 0) -> int:
    """Source port of a queue pair whose address has this flow label.

    >>> source_port(7), source_port(0x4001), source_port(0, 17, 18)
    (49159, 49152, 49458)
    """
    if not label:
        product = own_qpn * peer_qpn
        product ^= product >> 20
        label = (product ^ (product >> 40)) & _LABEL
    return LEAST_PORT | ((label & _LOW) ^ ((label & _LABEL) >> 14))


def rxe_datagram_port(qpn: int) -> int:
    """Source port of everything that a UD queue pair of Soft-RoCE sends, whatever flow label its address has.

    ``0xc000 + (hash_32(qpn, 14) & 0x3fff)`` in ``drivers/infiniband/sw/rxe/rxe_qp.c``; hash_32 multiplies by the golden
    ratio (``include/linux/hash.h``).

    >>> rxe_datagram_port(17), rxe_datagram_port(18)
    (57236, 63494)
    """
    return LEAST_PORT + ((qpn * _GOLDEN_RATIO & 0xFFFF_FFFF) >> 18)


def flow_label(port: int) -> int:
    """A flow label, never 0, that gives this source port.

    Raises
    ------
    ValueError
        RoCEv2 does not use this source port.

    >>> flow_label(49159), source_port(flow_label(49152))
    (7, 49152)
    """
    if not LEAST_PORT <= port <= 0xFFFF:
        raise ValueError(f"source ports of RoCEv2 are {LEAST_PORT} to 65535, not {port}")
    low = port & _LOW
    return low or (1 << 14) | 1
