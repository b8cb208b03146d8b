"""Loss on the way out of a pod, where routes are not known: of paths between leaves, but not between these leaves.

A lossy link above the leaves makes paths of all NICs of a pod lose, those that happen to cross it, so that several NICs
and links of several leaves seem to lose a little each. What tells is the paths that stay in the pod: they lose nothing.
All are held against what every path lost (`numeric.crossings`). Which leaves make a pod is not known; a pod is what
explains the losses best, if it does so clearly better than its leaves, its NICs, or any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.inferred.hidden import CORE
from sdfstream.detect.localise import Location
from sdfstream.numeric.crossings import CrossingOdds
from sdfstream.records.finding import Subject
from sdfstream.records.units import Bools, Float64s, Int64s

_CABLE: Final = float(np.log(1e-4))
"""Log odds of being faulty before anything is seen, as `inferred.hidden` has them."""
_CLEARLY: Final = float(np.log(20.0))
_MOST_GROUPS: Final = 8
_CLEAR: Final = 0.9


class PathLosses:
    """What the paths between NICs of known groups lost, laid to NICs and to what these share.

    `others` is the share of probes of each session that all else loses. Scores are log odds that something is lossy,
    against that nothing more is than `others` say.
    """

    def __init__(self, cabling: Cabling, counts: LossCounts, others: Float64s) -> None:
        self.group = cabling.groups()
        used, table = counts.used, cabling.sessions.table
        self.slots = used[(self.group[table["src"][used]] >= 0) & (self.group[table["dst"][used]] >= 0)]
        self.src, self.dst = table["src"][self.slots], table["dst"][self.slots]
        self.near, self.far = self.group[self.src], self.group[self.dst]
        self.events, self.probes = counts.events[self.slots], counts.probes[self.slots]
        self.others = np.clip(others[self.slots], 1e-9, 0.999)
        self.odds = CrossingOdds.of(self.events, self.probes, self.others)
        self.groups = np.unique(np.concatenate([self.near, self.far]))
        self.dearer = float(np.log(max(2, self.groups.size)))

    def leaving(self, groups: Sequence[int]) -> Bools:
        """(paths,) which begin or end in one of these groups, not both."""
        result: Bools = np.isin(self.near, groups) != np.isin(self.far, groups)
        return result

    def of_nics(self, nics: Sequence[int]) -> Bools:
        """(paths,) which begin or end at one of these NICs, not both."""
        result: Bools = np.isin(self.src, nics) != np.isin(self.dst, nics)
        return result

    def nic(self, number: int) -> float:
        """Score of a NIC."""
        return _CABLE + self.odds.crossed_by_all(np.flatnonzero(self.of_nics([number])))

    def shared(self, groups: Sequence[int]) -> float:
        """Score of something that paths may cross which leave these groups together."""
        score = _CABLE + self.odds.crossed_by_some(np.flatnonzero(self.leaving(groups)))
        return score - (len(groups) - 1) * self.dearer

    def pod(self) -> tuple[tuple[int, ...], float] | None:
        """Groups on whose common way out the paths may lose, and by how much that is likelier than that each for itself
        does something else; None: nobody probes between them, so that they may share a switch.
        """
        alone = {one: self.shared((one,)) for one in self.groups.tolist()}
        likely = sorted(alone, key=lambda one: -alone[one])[:_MOST_GROUPS]
        union, score = self._grown((likely[0],), alone[likely[0]], likely)
        inside = np.isin(self.near, union) & np.isin(self.far, union) & (self.near != self.far)
        if len(union) < 2 or not inside.any():
            return None
        nics = [self.nic(one) for one in np.flatnonzero(np.isin(self.group, union)).tolist()]
        each = (sum(max(0.0, alone[one]) for one in union), sum(max(0.0, one) for one in nics), 0.0)
        return union, score - max(each)

    def _grown(self, union: tuple[int, ...], score: float, more: Sequence[int]) -> tuple[tuple[int, ...], float]:
        """A union with others as long as that makes it likelier."""
        while True:
            wider = {(*union, one): self.shared((*union, one)) for one in more if one not in union}
            best = max(wider, key=lambda one: wider[one], default=union)
            if wider.get(best, score) <= score:
                return union, score
            union, score = best, wider[best]


@dataclass(frozen=True, slots=True)
class Pod:
    """Leaves on whose common way out the paths lose."""

    cabling: Cabling
    losses: PathLosses
    groups: tuple[int, ...]
    location: Location | None
    """Something beyond the leaves; `beside` are the pod's NICs. None: it is not clear yet."""

    @classmethod
    def of(
        cls,
        cabling: Cabling,
        found: Sequence[Location],
        standing: Sequence[Location],
        counts: LossCounts,
        others: Float64s,
    ) -> Pod | None:
        """What may explain a NIC or an inferred place that was `found`, what is `standing` first; None: no pod does."""
        vague = any(x.subject.type == "nic" or x.beside or x.subject.id == CORE for x in found)
        if not vague or cabling.topology.leaf_of or not (cabling.groups() >= 0).any():
            return None
        losses = PathLosses(cabling, counts, others)
        if losses.groups.size < 3:
            return None
        before = next((x for x in standing if x.subject.id == CORE and x.beside), None)
        if before is not None:
            nics = [cabling.sessions.nics.find(nic) for nic in before.beside]
            return cls(cabling, losses, tuple(np.unique(losses.group[nics]).tolist()), before)
        pod = losses.pod()
        if pod is None or pod[1] < -_CLEARLY:
            return None
        groups, likelier = pod
        return cls(cabling, losses, groups, _beyond(cabling, losses, groups) if likelier > _CLEARLY else None)

    def explains(self, found: Location) -> bool:
        """Whether a NIC or inferred place loses nothing of its own beside what the pod's way out loses."""
        losses, names = self.losses, self.cabling.sessions.nics
        outside = ~losses.leaving(self.groups)
        if found.subject.type == "nic":
            mine = np.flatnonzero(losses.of_nics([names.find(found.subject.id)]) & outside)
            return _CABLE + losses.odds.crossed_by_all(mine) <= 0
        if found.beside:
            mine = np.flatnonzero(losses.of_nics([names.find(nic) for nic in found.beside]) & outside)
            return _CABLE + losses.odds.crossed_by_some(mine) <= 0
        return found.subject.id == CORE or (
            found.subject.type == "path" and not np.isin(found.slots, losses.slots[outside]).any()
        )


def _beyond(cabling: Cabling, losses: PathLosses, groups: Sequence[int]) -> Location:
    """The core, with the paths that most likely cross it where it is lossy: known by what they lost."""
    names = tuple(sorted(cabling.sessions.nics.list[nic] for nic in np.flatnonzero(np.isin(losses.group, groups))))
    leaving = losses.leaving(groups)
    events, probes, others = losses.events[leaving], losses.probes[leaving], losses.others[leaving]
    share = max(float((events - probes * others).sum() / max(1, probes.sum())), 1e-6)
    likely: Int64s = losses.slots[leaving][(events > 0) & (events * np.log1p(share / others) > probes * share)]
    core, both = Subject("switch", CORE), ["both"] * likely.size
    return Location(core, [CORE], True, share, likely, [(CORE, _CLEAR)], _CLEAR, both, beside=names)
