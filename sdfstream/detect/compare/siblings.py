"""Whether a queue stands for want of capacity, or because flows crowd on one of several equal links.

A switch spreads flows over equal-cost links by a hash of their headers. Where the hash has too little to go by, or a
few large flows happen to meet, one link has a queue while its siblings stand idle. Three things together show that:

- paths between the same leaves that cross a sibling are well, in the same classes, enough of them on most siblings;
- the bytes that queue pairs tell of, along the routes of their flows, fill the link by themselves. Without that,
  traffic that nobody tells of may have taken it, and nobody knows whether it could go elsewhere;
- spread over the link and its quiet siblings they would leave room.

Where one of them is not known nothing is said: no declared cabling (a switch's ways up are not known), no traced flows,
or no bytes. What queue pairs carry at least is told for whole seconds, two to three seconds late, so a queue must have
stood for longer than that before such bytes are taken for those that fill it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.delays import DelayBaselines
from sdfstream.detect.localise import Location
from sdfstream.detect.queues.hops import HopEstimates
from sdfstream.records.finding import Evidence
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

LASTS_NS: Final = 4 * NS_PER_S
"""A queue is this old before anything is said of it: a second that lies wholly within it is known then."""
_MOVES_NS: Final = NS_PER_S
"""So long after the last trace that showed a move, all routes that it changed have been traced."""
_SURELY: Final = 0.9
_LIKELY: Final = 0.6
"""A path that is well crosses a sibling when it does so with this probability, given that it crosses one of them."""
_FULL: Final = 0.7
"""Share of a link's speed that known flows must surely carry: headers and repeats are not told of, and after a move of
flows the routes of some are in doubt until they are traced again."""
_ROOM: Final = 0.8
"""What they would fill, spread evenly, of the link and its quiet siblings."""
_FEWEST: Final = 3
"""Well paths over a sibling that make it quiet."""


class SiblingComparison:
    """Compares a link's queue with those of the links that its switch could have chosen as well."""

    def __init__(self, cabling: Cabling, delays: DelayBaselines, hops: HopEstimates) -> None:
        self._cabling, self._delays, self._hops = cabling, delays, hops

    def is_full(self, location: Location, now_ns: int) -> bool:
        """Whether a queue stands at one direction of a link that queue pairs' own bytes fill.

        Not while its switch moves flows: where their bytes went is laid to their former routes until they are traced.
        """
        if location.subject.type != "link" or not location.direction_known or len(location.directions) != 1:
            return False
        here = location.directions[0]
        if now_ns - self._cabling.moves.get(here.partition("->")[0], ABSENT_NS) < _MOVES_NS:
            return False
        return location.probability >= _SURELY and self._load(here) >= _FULL

    def imbalance(self, location: Location, number: Ints, well: Bools, now_ns: int) -> tuple[Evidence, ...]:
        """What shows that the queue of these directed paths is one of flows badly spread; empty: nothing does.

        Parameters
        ----------
        location : Location
            Where the queue stands.
        number : (paths,) int64
            Directed paths that stand in it.
        well : (2·sessions,) bool
            Directed paths that surely stand in none.
        now_ns : int
            Bus time.
        """
        if not self.is_full(location, now_ns):
            return ()
        here = location.directions[0]
        load = self._load(here)
        paths = self._of_siblings(here, number, well)
        quiet = {name: mine for name, mine in paths.items() if mine.size >= _FEWEST}
        if not quiet or 2 * len(quiet) < len(paths):
            return ()
        loads = [self._load(name) for name in quiet]
        if (load + sum(loads)) / (1 + len(quiet)) > _ROOM:
            return ()
        where = " ".join(quiet)
        every = np.unique(np.concatenate(list(quiet.values())))
        excess_ns = self._delays.table["delay"][every] - self._delays.moments.mean[every]
        return (
            Evidence("quiet-siblings", float(len(quiet)), "links", where),
            Evidence("sibling-paths", float(every.size), "paths", where),
            Evidence("sibling-excess", round(float(np.median(excess_ns)) / 1e3, 1), "µs", where),
            Evidence("known-load", round(load, 3), "1", here, round(float(np.mean(loads)), 3)),
        )

    def _load(self, direction: str) -> float:
        """Share of a direction's speed that queue pairs carried at least, in the last second that is known."""
        element, known = self._cabling.elements.find(direction), self._hops.carried_share
        return float(known[element]) if 0 <= element < known.size else 0.0

    def _of_siblings(self, here: str, number: Ints, well: Bools) -> dict[str, Ints]:
        """By sibling: the well paths that cross it, of the classes of those in the queue, between their leaves.

        Where a switch has moved flows since a path was traced, its way is in doubt. A path that is well does not cross
        `here`, so it takes one of the siblings, the one of its trace most likely. Links that no path between these
        leaves takes, well or not, are no equal way.
        """
        start, _, end = here.partition("->")
        if "/" in start or "/" in end:
            return {}
        others = sorted(self._cabling.topology.neighbours.get(start, set()) - {end})
        element = {f"{start}->{other}": self._cabling.elements.find(f"{start}->{other}") for other in others}
        element = {name: e for name, e in element.items() if e >= 0}
        alike, weight = self._crossing(list(element.values()), number)
        wanted = set(self._leaves(number))
        between = np.array([pair in wanted for pair in self._leaves(alike)], np.bool_)
        likely = weight >= _LIKELY * np.maximum(weight.sum(axis=1, keepdims=True), _LIKELY)
        found = {}
        for column, name in enumerate(element):
            over = alike[between & likely[:, column]]
            if over.size:
                found[name] = over[well[over]]
        return found

    def _crossing(self, elements: list[int], number: Ints) -> tuple[Ints, Floats]:
        """Directed paths of the same classes that may cross one of these; (paths, elements) how probably each."""
        cabling, n = self._cabling, self._cabling.sessions.count
        dscp = cabling.sessions.table["dscp"]
        there = np.isin(cabling.element[:n], elements).any(axis=2).ravel()
        paths = np.flatnonzero(there & np.isin(dscp[:n].repeat(2), dscp[number // 2])).astype(np.int64)
        element, weight = cabling.element[paths // 2, paths % 2], cabling.weight[paths // 2, paths % 2]
        return paths, np.stack([(weight * (element == e)).sum(axis=1) for e in elements] or [np.zeros(0)], axis=1)

    def _leaves(self, number: Ints) -> list[tuple[str, str]]:
        """Leaf of the sender and of the receiver of each directed path."""
        sessions, leaf_of = self._cabling.sessions, self._cabling.topology.leaf_of
        nics, ends = sessions.nics.list, []
        for n in number.tolist():
            src, dst = nics[sessions.table["src"][n // 2]], nics[sessions.table["dst"][n // 2]]
            pair = leaf_of.get(src, src), leaf_of.get(dst, dst)
            ends.append(pair[::-1] if n % 2 else pair)
        return ends
