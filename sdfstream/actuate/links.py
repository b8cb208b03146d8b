"""What is known of links: who loads them, and which finding names them; `queues` has what the probes say.

**Loads**: the links that the data of queue pairs cross (`Loads`), and the share of a link that a newcomer can count on
(`Shares`): on a link of speed C with n other queue pairs that load it C / (n + 1), on its NICs' cables their speed
shared by what they carry now. Capacity that others leave unused is left out of account, so a prediction is rather too
low; in a ring all of a job's queue pairs are as slow as the slowest, and speed up when that one does.

**Findings** (`ActionableFindings`): the open ones that may move something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.actuate.jobs import OwnedQp, RunningJobs
from sdfstream.actuate.paths import MappedPath
from sdfstream.records.fabric import Topology


@dataclass(slots=True)
class Loads:
    """Queue pairs per hop by their data's present routes, and those that would come by armed failovers."""

    of: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Queue pair to the hops its data cross now; absent: its route is not known."""
    count: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Queue pair to the hops of its data on its first alternate."""
    reserved_count: dict[str, int] = field(default_factory=dict)

    def put(self, qp: str, hops: Sequence[str]) -> None:
        """The queue pair's data cross these hops now (none: not known, or it is gone)."""
        if self.of.get(qp, ()) == tuple(hops):
            return
        for hop in self.of.pop(qp, ()):
            self.count[hop] -= 1
            if not self.count[hop]:
                del self.count[hop]
        if hops:
            self.of[qp] = tuple(hops)
            for hop in hops:
                self.count[hop] = self.count.get(hop, 0) + 1

    def reserve(self, qp: str, hops: Sequence[str]) -> None:
        """The queue pair's data would cross these hops next (none: nowhere)."""
        for hop in self.reserved.pop(qp, ()):
            self.reserved_count[hop] -= 1
            if not self.reserved_count[hop]:
                del self.reserved_count[hop]
        if hops:
            self.reserved[qp] = tuple(hops)
            for hop in hops:
                self.reserved_count[hop] = self.reserved_count.get(hop, 0) + 1

    def expected(self, qp: str, hops: Sequence[str]) -> int:
        """Most other queue pairs on one of these hops now, and that would come by failovers."""
        own = set(self.reserved.get(qp, ()))
        coming = max((self.reserved_count.get(hop, 0) - (hop in own) for hop in hops[1:]), default=0)
        return self.others(qp, hops) + coming

    def others(self, qp: str, hops: Sequence[str]) -> int:
        """Most other queue pairs on one of these hops, the sender's own cable left out."""
        mine = set(self.of.get(qp, ()))
        return max((self.count.get(hop, 0) - (hop in mine) for hop in hops[1:]), default=0)

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain values."""
        return {name: [[qp, list(h)] for qp, h in getattr(self, name).items()] for name in ("of", "reserved")}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up a state made by `snapshot`."""
        self.of, self.count, self.reserved, self.reserved_count = {}, {}, {}, {}
        for qp, hops in state["of"]:
            self.put(qp, hops)
        for qp, hops in state["reserved"]:
            self.reserve(qp, hops)

    def crossing(self) -> dict[str, list[str]]:
        """Hop to the queue pairs whose data cross it, their own NIC's cable left out; by name."""
        found: dict[str, list[str]] = {}
        for qp in sorted(self.of):
            for hop in self.of[qp][1:]:
                found.setdefault(hop, []).append(qp)
        return found


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
        jobs: RunningJobs,
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

    def predicted_bps(self, owned: OwnedQp, mapped: MappedPath, full_hop: str) -> float:
        """bit/s that the queue pair may hope for on `mapped`, coming from the full link `full_hop`."""
        qp, pair = owned.pair.qp, owned.pair
        like_full = self.load_bps(full_hop)
        predicted_bps = float("inf")
        for hop in mapped.data[1:]:
            speed = self.topology.speed_bps(hop) * PAYLOAD or like_full
            others = sum(self.rates.get(q, _UNKNOWN) >= self.busy_share * speed for q in self._others(hop, qp))
            predicted_bps = min(predicted_bps, speed / (others + 1))
        for nic, count in ((pair.src, self.sent), (pair.dst, self.received)):
            if speed := self.topology.nic_speed_bps(nic) * PAYLOAD:
                predicted_bps = min(predicted_bps, speed / max(1, count.get(nic, 0)))
        return predicted_bps

    def _others(self, hop: str, qp: str) -> list[str]:
        return [other for other in self.crossing.get(hop, ()) if other != qp]


_UNREST: Final = ("link-down", "nic-down", "path-down", "link-flap", "host-silent")
_MOST_FINDINGS: Final = 10_000
_LIKELY: Final = 0.3
"""Suspects less likely than this are not named."""


@dataclass(frozen=True, slots=True)
class OpenFinding:
    """An open finding that may move something."""

    id: str
    kind: str
    subject_type: str
    subject: str
    directions: tuple[str, ...]
    """Link directions ``a->b`` that it may be about."""
    confidence: float
    seen_ns: int
    """Bus time of its newest statement."""


class ActionableFindings:
    """Open findings of the kinds that may move something."""

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self._kinds = frozenset(kinds)
        self._open: dict[str, OpenFinding] = {}

    def __iter__(self) -> Any:
        return iter(self._open.values())

    def take(self, data: Mapping[str, Any], at_ns: int) -> bool:
        """Take a finding; True when the fabric changes by it (something is down, or up again)."""
        kind, status, name = str(data["kind"]), data["status"], str(data["id"])
        if kind in self._kinds:
            if status == "resolved":
                self._open.pop(name, None)
            elif name in self._open or len(self._open) < _MOST_FINDINGS:
                self._open[name] = _finding(data, at_ns)
        return kind in _UNREST and status != "update"

    def forget(self, before_ns: int) -> None:
        """Drop what was not repeated since: its resolution was lost."""
        self._open = {name: finding for name, finding in self._open.items() if finding.seen_ns >= before_ns}

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [
            [t.id, t.kind, t.subject_type, t.subject, list(t.directions), t.confidence, t.seen_ns]
            for t in self._open.values()
        ]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`."""
        self._open = {
            row[0]: OpenFinding(row[0], row[1], row[2], row[3], tuple(row[4]), row[5], row[6]) for row in state
        }


def _finding(data: Mapping[str, Any], at_ns: int) -> OpenFinding:
    subject = data["subject"]
    kind, name = str(subject["type"]), str(subject["id"])
    named = [word for word in str(data.get("detail") or "").split() if "->" in word]
    suspects = [str(s["id"]) for s in data.get("suspects", ()) if float(s["probability"]) >= _LIKELY]
    named = named if kind in ("link", "nic") else []
    directions = tuple(dict.fromkeys([*named, *(s for s in suspects if "->" in s)]))
    if not directions and kind == "link":
        a, dashes, b = name.partition("--")
        directions = (f"{a}->{b}", f"{b}->{a}") if dashes else (name,)
    return OpenFinding(str(data["id"]), str(data["kind"]), kind, name, directions, float(data["confidence"]), at_ns)
