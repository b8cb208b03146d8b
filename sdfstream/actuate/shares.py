"""What a queue pair may hope for on another way: the smallest fair share along it.

On a link of speed C with n other queue pairs that load it, a newcomer is counted on for C / (n + 1), its NICs' cables
for their speed shared by what they carry now. What others do not use is left out of account, so a prediction is rather
too low; in a ring all of a job's queue pairs are as slow as the slowest, and speed up when that one does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sdfstream.actuate.jobs import Jobs, Owned
from sdfstream.actuate.maps import Mapped
from sdfstream.records.topology import Topology

PAYLOAD: Final = 0.9
"""Share of a link's speed that payload can have."""
_UNKNOWN: Final = float("inf")
"""A queue pair whose throughput is not known counts as a load."""


@dataclass(slots=True)
class Shares:
    """Loads of links and NICs at one instant."""

    topology: Topology
    rates: Mapping[str, float]
    """Queue pair to bit/s; absent: not known, or it does not send now."""
    crossing: Mapping[str, Sequence[str]]
    """Hop to queue pairs."""
    busy_share: float
    sent: dict[str, int] = field(default_factory=dict)
    """NIC to queue pairs that it sends at a rate."""
    received: dict[str, int] = field(default_factory=dict)

    @classmethod
    def make(
        cls,
        topology: Topology,
        rates: Mapping[str, float],
        crossing: Mapping[str, Sequence[str]],
        busy_share: float,
        jobs: Jobs,
    ) -> Shares:
        """Count what every NIC carries."""
        shares = cls(topology, rates, crossing, busy_share)
        for owned in jobs:
            pair = owned.pair
            for nic, count in ((pair.src, shares.sent), (pair.dst, shares.received)):
                if rates.get(pair.qp, _UNKNOWN) >= busy_share * topology.nic_speed_bps(nic):
                    count[nic] = count.get(nic, 0) + 1
        return shares

    def load_bps(self, hop: str) -> float:
        """What queue pairs move over a link."""
        return sum(self.rates.get(qp, 0.0) for qp in self.crossing.get(hop, ()))

    def hoped(self, owned: Owned, way: Mapped, hot: str) -> float:
        """bit/s that the queue pair may hope for on `way`, coming from the full link `hot`."""
        qp, pair = owned.pair.qp, owned.pair
        like_hot = self.load_bps(hot)
        hoped = float("inf")
        for hop in way.data[1:]:
            speed = self.topology.speed_bps(hop) * PAYLOAD or like_hot
            others = sum(self.rates.get(q, _UNKNOWN) >= self.busy_share * speed for q in self._others(hop, qp))
            hoped = min(hoped, speed / (others + 1))
        for nic, count in ((pair.src, self.sent), (pair.dst, self.received)):
            if speed := self.topology.nic_speed_bps(nic) * PAYLOAD:
                hoped = min(hoped, speed / max(1, count.get(nic, 0)))
        return hoped

    def _others(self, hop: str, qp: str) -> list[str]:
        return [other for other in self.crossing.get(hop, ()) if other != qp]
