"""NICs whose port lost its carrier or was disabled, before their paths have fallen silent.

All NICs of a leaf lose their carrier when it dies, and each is read by its own host at another time. So one is held
back until another on the same leaf has worked since, or until silence had time to be laid to the leaf.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sdfstream.detect.cabling import Cabling
from sdfstream.detect.config import DetectConfig
from sdfstream.detect.detections import Detection
from sdfstream.detect.liveness import SLACK_NS, SessionLiveness, Sightings
from sdfstream.detect.presence import Presence
from sdfstream.detect.root.settling import SEPARATE_NS
from sdfstream.detect.sessions import Sessions
from sdfstream.records.finding import Evidence, Subject
from sdfstream.records.units import ABSENT_NS, NS_PER_S

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Carriers:
    """Ports as their hosts read them, against what probes say of the same NICs."""

    def __init__(
        self,
        config: DetectConfig,
        sessions: Sessions,
        presence: Presence,
        liveness: SessionLiveness,
        cabling: Cabling,
    ) -> None:
        self.config, self.sessions, self.presence = config, sessions, presence
        self.liveness, self.cabling = liveness, cabling

    def down(self, seen: Sightings, lost: Bools, said: set[str]) -> list[Detection]:
        """NICs of which the last reading says that their port is down; (nics,) `lost`, but those `said` already.

        Once a probe has passed after the reading, the reading is history. An empty port, that no path ever used, is
        no fault.
        """
        if not lost.any():
            return []
        used = self.liveness.table["ever"]
        src, dst = self.sessions.table["src"][used], self.sessions.table["dst"][used]
        passed = np.full(lost.size, ABSENT_NS)
        np.maximum.at(passed, src, seen.reported_round_ns[used])
        np.maximum.at(passed, dst, seen.reported_fwd_ns[used])
        ports = self.presence.ports
        down = lost & (passed != ABSENT_NS) & (passed <= ports["at_ns"] + SLACK_NS)
        names = self.sessions.nics.list
        return [
            self._port_detection(nic, names[nic], passed)
            for nic in np.flatnonzero(down).tolist()
            if names[nic] not in said
        ]

    def _port_detection(self, nic: int, name: str, passed: Ints) -> Detection:
        """`passed` is when each NIC was last reported to work. Until another on its leaf is, the leaf may be dead."""
        ports = self.presence.ports
        others = [n for n in self._beside(nic) if passed[n] != ABSENT_NS]
        works = any(passed[n] > ports["since_at_ns"][nic] + 2 * SLACK_NS for n in others)
        limits_ns = self.presence.limits_ns(self.config.liveness_ns)[self.sessions.nic_host[[nic, *others]]]
        confirm_ns = int(limits_ns[0]) // 2
        if others and not works:
            limit_ns = int(limits_ns.max())
            confirm_ns = limit_ns + self.config.settle_ns(limit_ns) + SEPARATE_NS
        disabled = ports["state"][nic] == 3
        sides = (self.cabling.side(name, "tx"), self.cabling.side(name, "rx"))
        return Detection(
            "nic-down",
            Subject("nic", name),
            int(ports["since_at_ns"][nic]),
            "port-disabled" if disabled else "link-failure",
            0.99,
            (Evidence("carrier", 0.0, "1", name, 1.0),),
            severity="urgent",
            suspects=tuple((side, 1.0) for side in sides),
            plane=self.sessions.planes.get(nic),
            confirm_ns=confirm_ns,
            hold_ns=2 * int(self.config.hold_s * NS_PER_S),
            detail="port disabled" if disabled else "carrier lost",
            alone=works,
        )

    def _beside(self, nic: int) -> list[int]:
        """The other NICs on the same leaf."""
        leaf_of, names = self.cabling.topology.leaf_of, self.sessions.nics.list
        leaf = leaf_of.get(names[nic])
        if leaf is None:
            return []
        numbers = (self.sessions.nics.find(name) for name, its in leaf_of.items() if its == leaf)
        return [n for n in numbers if n >= 0 and n != nic]
