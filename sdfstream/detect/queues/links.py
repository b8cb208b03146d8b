"""Directions of links by number, and which of them the paths cross."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.records.fabric import link_id

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_SURE: Final = 0.99


class LinkCrossings(NamedTuple):
    """Paths and directions; `path` and `element` are (crossings,)."""

    path: Ints
    """Position among the paths that were asked for."""
    element: Ints
    """Cabling's number of a direction that the path surely crosses."""
    whole: Bools
    """(paths,) all directions that the path crosses are there."""


class LinkDirections:
    """Elements of `Cabling` as links: one direction of a link, or a side of a NIC with the cable to its leaf."""

    def __init__(self, cabling: Cabling) -> None:
        self._cabling = cabling
        self._known: tuple[int, int, int] = (-1, -1, -1)
        self.is_link = np.zeros(0, np.bool_)
        """(elements,) others are switches."""
        self.direction: list[str] = []
        """(elements,) ``a->b``; of a NIC whose cable is not known ``h00/r0 tx``."""
        self.link: list[str] = []
        """(elements,) ``a--b``; of a NIC whose cable is not known its id."""
        self.speed_bps = np.zeros(0)
        """(elements,) as declared; 0: not known."""

    @property
    def routes_known(self) -> bool:
        """Whether cabling is declared, or any route was traced."""
        return bool(self._cabling.topology.leaf_of) or bool(self._cabling.ends.addresses)

    def refresh(self) -> None:
        """Name what is new; all again after a declaration, or where a trace showed other ends."""
        cabling = self._cabling
        now = (cabling.declared, len(cabling.elements), len(cabling.ends.addresses))
        if now == self._known:
            return
        self._known = now
        names = cabling.elements.list
        self.is_link = np.array([not name.startswith("node ") for name in names], np.bool_)
        self.direction = [cabling.direction(i) for i in range(len(names))]
        self.link = [_link(direction) for direction in self.direction]
        self.speed_bps = np.array([self._speed_bps(name) for name in names], np.float64)

    def _speed_bps(self, name: str) -> int:
        kind, _, rest = name.rpartition(" ")
        topology = self._cabling.topology
        if kind in ("tx", "rx"):
            return topology.nic_speed_bps(rest)
        hop = topology.hop(rest) if not kind else None
        return 0 if hop is None else topology.speed_bps(hop)

    def crossed_by(self, number: Ints) -> LinkCrossings:
        """What these directed paths (2·session + direction) cross."""
        slot, direction = number // 2, number % 2
        element, weight = self._cabling.element[slot, direction], self._cabling.weight[slot, direction]
        there = element >= 0
        sure = weight > _SURE
        whole = self._cabling.closed[slot, direction] & there.any(axis=1) & (sure | ~there).all(axis=1)
        path, column = np.nonzero(there & sure & self.is_link[element])
        return LinkCrossings(path.astype(np.int64), element[path, column], whole)


def _link(direction: str) -> str:
    a, arrow, b = direction.partition("->")
    if not arrow:
        return direction.partition(" ")[0]
    return link_id(a, b) if a else direction
