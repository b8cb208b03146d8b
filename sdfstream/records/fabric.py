"""Identifiers of the fabric and the shapes of declared cabling and traced paths.

NIC id ``host/nic``; port id ``host/nic:port``; link id ``a--b`` (its two ends' node names, sorted); one direction
of a link ``a->b``. Path id: (src, dst, transport, path, class, dir).
"""

from __future__ import annotations

from typing import NamedTuple


class PathId(NamedTuple):
    """One direction of one session: what a probe may speak for, and nothing else."""

    src: str
    dst: str
    transport: str
    path: int
    dscp: int
    dir: str

    def __str__(self) -> str:
        """``h00/r0>h04/r0 udp:50001 dscp46 fwd``."""
        return f"{self.src}>{self.dst} {self.transport}:{self.path} dscp{self.dscp} {self.dir}"


def host_of(nic: str) -> str:
    """The host of a NIC or port id.

    >>> host_of("gpu-17/mlx5_2:1")
    'gpu-17'
    """
    return nic.partition("/")[0]


def link_id(a: str, b: str) -> str:
    """The id of the link between `a` and `b`, in either order.

    >>> link_id("s1", "l0")
    'l0--s1'
    """
    return "--".join(sorted((a, b)))


def direction_id(a: str, b: str) -> str:
    """The id of the direction from `a` to `b`.

    >>> direction_id("l0", "s1")
    'l0->s1'
    """
    return f"{a}->{b}"
