"""Paths of a queue pair: what each loads, how it is watched, which are worth arming, what throughput each promises.

A *segment* is a link direction that the queue pair's data or answers cross (but for the two NICs' own cables). It is
*covered* when probe paths of the sending NIC cross it. A path can be watched when all its segments are covered; one
that cannot be watched is never armed, neither as the present path nor as an alternate.

What a queue pair may hope for on another path is the smallest fair share along it. On a link of speed C with n other
queue pairs that load it, a newcomer is counted on for C / (n + 1), its NICs' cables for their speed shared by what they
carry now. Capacity that others leave unused is left out of account, so a prediction is rather too low; in a ring all of
a job's queue pairs are as slow as the slowest, and speed up when that one does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.actuate.config import ActuateConfig
from sdfstream.actuate.jobs import OwnedQp, RunningJobs
from sdfstream.actuate.ledger import Doubt
from sdfstream.actuate.routes import ProbeKey, Probing, Routes, segments
from sdfstream.records.topology import Topology
from sdfstream.records.units import NS_PER_MS, NS_PER_S

Watch = list[dict[str, Any]]

_LOOK_AGAIN_NS: Final = NS_PER_S
"""Routes that have become too old are noticed this late."""


@dataclass(frozen=True, slots=True)
class MappedPath:
    """One path of a queue pair with all that is known of it."""

    path: int
    data: tuple[str, ...]
    """Hops of its data, the sender's own cable first."""
    segments: tuple[str, ...]
    watch: Watch
    covered: int
    """Probe paths over its least covered segment."""


@dataclass(frozen=True, slots=True)
class FailoverPlan:
    """What would be armed."""

    present: MappedPath
    alternates: tuple[MappedPath, ...]


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


class Mapper:
    """Makes watches and plans from routes and probe paths."""

    def __init__(
        self, config: ActuateConfig, routes: Routes, probing: Probing, loads: Loads, topology: Topology | None = None
    ) -> None:
        self.config, self.routes, self.probing, self.loads = config, routes, probing, loads
        self.topology = topology or Topology()
        self._found: dict[tuple[str, str, str], list[ProbeKey]] = {}
        self._found_at = (-1, -1, -1)

    def path(self, owned: OwnedQp, path: int, now_ns: int) -> MappedPath | Doubt:
        """What is known of the queue pair on this source port."""
        pair = owned.pair
        data = self.routes.flow(pair.flow(path), now_ns)
        answers = self.routes.flow(pair.answers(path), now_ns)
        if data is None or answers is None:
            which = "data" if data is None else "answers"
            return Doubt("unknown-way", f"the way of its {which} on source port {path} is not known, or too old")
        crossed = segments(data, answers)
        if not crossed:
            return Doubt("no-other-way", "both NICs hang on one switch; there is no other way to move to")
        watch: Watch = []
        covered = self.config.most_watch_paths
        for segment in crossed:
            probes = self._probes(pair.src, pair.dst, segment, now_ns)
            if not probes:
                name = self.topology.direction(segment)
                return Doubt("uncovered", f"no probe path of {pair.src} crosses {name}, which source port {path} needs")
            covered = min(covered, len(probes))
            watch.append({"segment": segment, "paths": [[p.dst, p.path, p.dscp] for p in probes]})
        return MappedPath(path, data, crossed, watch, covered)

    def _probes(self, nic: str, dst: str, segment: str, now_ns: int) -> list[ProbeKey]:
        """Probe paths to watch a segment by: the fast ones where there are any, those to the same far NIC first."""
        at = (self.routes.version, self.probing.version, now_ns // _LOOK_AGAIN_NS)
        if at != self._found_at:
            self._found, self._found_at = {}, at
        known = self._found.get((nic, dst, segment))
        if known is None:
            known = self._found[nic, dst, segment] = self._choose_probes(nic, dst, segment, now_ns)
        return known

    def _choose_probes(self, nic: str, dst: str, segment: str, now_ns: int) -> list[ProbeKey]:
        found = []
        for key in self.routes.crossing(nic, segment, now_ns):
            interval_ns = self.probing.interval_ns(key)
            if interval_ns is not None:
                found.append((interval_ns, key))
        fast_ns = int(self.config.watch_interval_ms * NS_PER_MS)
        fast = [key for interval_ns, key in found if 0 < interval_ns <= fast_ns]
        chosen = fast or [key for _, key in found]
        return sorted(chosen, key=lambda key: (key.dst != dst, key))[: self.config.most_watch_paths]

    def unclean_segment(self, nic: str, mapped: MappedPath) -> str:
        """The first segment that no alive probe path shows to be clean; empty: all are."""
        for segment in mapped.watch:
            if not any(self.probing.alive(ProbeKey(nic, *path)) for path in segment["paths"]):
                return str(segment["segment"])
        return ""

    def plan(self, owned: OwnedQp, now_ns: int) -> FailoverPlan | Doubt:
        """The present path and the best alternates."""
        present = self.path(owned, owned.pair.path, now_ns)
        if isinstance(present, Doubt):
            return present
        found = self.alternates(owned, now_ns)
        chosen = self._choose(owned, present, [m for m in found if m.segments != present.segments])
        if not chosen:
            doubts = len(owned.pair.alternates) - len(found)
            return Doubt(
                "no-alternate",
                f"of {len(owned.pair.alternates)} source ports none has a known way apart from the present one "
                f"({doubts} not known or not covered)",
            )
        return FailoverPlan(present, tuple(chosen))

    def alternates(self, owned: OwnedQp, now_ns: int) -> list[MappedPath]:
        """All other source ports of the queue pair whose route is known and can be watched."""
        ports = (port for port in owned.pair.alternates if port != owned.pair.path)
        mapped = (self.path(owned, port, now_ns) for port in dict.fromkeys(ports))
        return [m for m in mapped if isinstance(m, MappedPath)]

    def others(self, owned: OwnedQp, present: MappedPath, but: int, now_ns: int) -> list[MappedPath]:
        """Alternates to a path that the queue pair was moved to, the one it left apart."""
        found = [m for m in self.alternates(owned, now_ns) if m.path != but and m.segments != present.segments]
        return self._choose(owned, present, found)

    def _choose(self, owned: OwnedQp, present: MappedPath, found: Sequence[MappedPath]) -> list[MappedPath]:
        """Apart from the present path and from each other where possible, better covered and less loaded first.

        Ties are drawn by a hash of the queue pair, so that those that share a link do not all run to the same other.
        """
        chosen: list[MappedPath] = []
        taken = set(present.segments)
        rest = list(found)
        while rest and len(chosen) < self.config.most_alternates:
            best = min(
                rest,
                key=lambda m: (
                    len(set(m.segments) & set(present.segments)),
                    len(set(m.segments) & taken),
                    m.covered < 2,
                    self.loads.expected(owned.pair.qp, m.data),
                    draw(self.config.seed, owned.pair.qp, m.path),
                ),
            )
            rest.remove(best)
            chosen.append(best)
            taken |= set(best.segments)
        self.loads.reserve(owned.pair.qp, chosen[0].data if chosen else ())
        return chosen


def draw(seed: int, *what: object) -> int:
    """A number that is the same for the same arguments and spread evenly otherwise: a lot without a state."""
    text = "|".join(str(segment) for segment in (seed, *what))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def failover_set(
    former_watch: Watch, alternates: Sequence[tuple[int, Watch]], config: ActuateConfig, hold_down_ms: int
) -> dict[str, Any]:
    """The ``set`` of an armed failover.

    ``watch`` is always that of the path to go back to (``expected.path``); a queue pair that was moved finds the watch
    of its present path among the alternates.
    """
    return {
        "watch": former_watch,
        "alternates": [{"path": path, "watch": watch} for path, watch in alternates],
        "hold_down_ms": hold_down_ms,
        "clean_probes": config.clean_probes,
    }


def watch_of(set_: Mapping[str, Any], path: int) -> Watch | None:
    """The watch of an alternate in the ``set`` of an armed failover."""
    for alternate in set_.get("alternates", ()):
        if alternate["path"] == path:
            watch: Watch = alternate["watch"]
            return watch
    return None


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
