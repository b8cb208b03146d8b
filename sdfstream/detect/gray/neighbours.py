"""What a NIC and those that share a switch with it lose, where routes are not known: by it, or by what they share."""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.gray.known import LossCounts
from sdfstream.detect.inferred.hidden import CORE, leaf_name
from sdfstream.detect.localise import Location
from sdfstream.numeric.binomial import log_tail_bound
from sdfstream.records.fabric import link_id
from sdfstream.records.finding import Subject
from sdfstream.records.units import Float64s, Int64s

_SPARED: Final = float(np.log(0.1))
_CLEAR: Final = 0.9


class Neighbours:
    """Sessions of a NIC and of those that share a switch with it, where routes are not known.

    Attributes
    ----------
    own, beside : (n,) int64
        Sessions that leave the switch: of the NIC, of its neighbours.
    inside : (n,) int64
        Of the NIC to its neighbours.
    opposite : tuple of str
        NICs of the one other switch, where every session that leaves either leads to the other; else none.
    """

    def __init__(self, cabling: Cabling, counts: LossCounts, number: int, members: Int64s) -> None:
        self.cabling, self.counts = cabling, counts
        self.nics = tuple(sorted(cabling.sessions.nics.list[nic] for nic in members.tolist()))
        used, table = counts.used, cabling.sessions.table
        src, dst = table["src"][used], table["dst"][used]
        mine = (src == number) | (dst == number)
        leaves = np.isin(src, members) != np.isin(dst, members)
        self.own, self.beside, self.inside = used[mine & leaves], used[~mine & leaves], used[mine & ~leaves]
        self.opposite = self._opposite(src[leaves], dst[leaves], members)

    def _opposite(self, src: Int64s, dst: Int64s, members: Int64s) -> tuple[str, ...]:
        group, used, table = self.cabling.groups(), self.counts.used, self.cabling.sessions.table
        far = np.unique(group[np.where(np.isin(src, members), dst, src)])
        if far.size != 1 or far[0] < 0:
            return ()
        theirs = np.flatnonzero(group == far[0])
        ends = np.isin(table["src"][used], theirs).astype(int) + np.isin(table["dst"][used], theirs)
        if int((ends == 1).sum()) > src.size:  # some of theirs lead elsewhere
            return ()
        return tuple(sorted(self.cabling.sessions.nics.list[nic] for nic in theirs.tolist()))

    @classmethod
    def of(cls, cabling: Cabling, nic: str, counts: LossCounts) -> Neighbours | None:
        """Those of `nic`; None: it is not known that it has any, as where routes are."""
        group, number = cabling.groups(), cabling.sessions.nics.find(nic)
        if number < 0 or group[number] < 0:
            return None
        members = np.flatnonzero(group == group[number])
        return cls(cabling, counts, number, members) if members.size > 1 else None

    def lost(self, slots: Int64s, others: Float64s) -> float:
        """Log of how likely all else makes these sessions lose so much."""
        return self.counts.by_chance(slots, others)

    def spared(self) -> bool:
        """Whether sessions to the neighbours surely lose less than those that leave; also where there are none."""
        if not self.inside.size:
            return True
        n = int(self.counts.probes[self.inside].sum())
        passed = n - int(self.counts.events[self.inside].sum())
        return (
            float(log_tail_bound(passed, max(n, 1), min(max(1.0 - self.counts.share(self.own), 1e-9), 1 - 1e-9)))
            <= _SPARED
        )

    def link(self) -> Location:
        """A link of their switch, which they know by what the paths over it lost; or of it and the one `opposite`."""
        leaves = [leaf_name(nics[0]) for nics in (self.nics, self.opposite) if nics]
        names = [name for leaf in leaves for name in (f"{leaf}->{CORE}", f"{CORE}->{leaf}")]
        slots = np.union1d(self.own, self.beside)
        slots = slots[self.counts.events[slots] > 0]
        suspects, both = [(name, 1.0 / len(names)) for name in names], ["both"] * slots.size
        if self.opposite:
            core = Subject("switch", CORE)
            return Location(core, names, False, self.counts.share(slots), slots, suspects, 0.5, both, beside=self.nics)
        subject = Subject("link", link_id(leaves[0], CORE))
        return Location(
            subject, names, False, self.counts.share(slots), slots, suspects, _CLEAR, both, beside=self.nics
        )
