"""Spare ports: found where watch ports miss a segment, few at a time, within the budgets, and given up in time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b

import pytest

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.path_watch import WatchedRoute, WatchedRoutes
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.quick_paths import QuickPaths, spare_ports, watch_ports
from sdfstream.agent.spare_ports import AGAIN_NS, AT_ONCE, HOLD_NS, TRACED_NS, TRIAL_NS, SparePorts
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.records.fabric import Flow, PathId
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

S = NS_PER_S
SRC, DST = "h3/r0", "h0/r0"
CONFIG = AgentConfig(hosts=())
TRACED_IN_S = 3
"""From its first probe until a port is traced; a host traces two or three a second."""


class Fabric:
    """A leaf-spine whose hash the agent does not know, and one NIC pair with queue pairs and alternates."""

    def __init__(self, seed: int, spines: int, config: AgentConfig = CONFIG) -> None:
        self.seed, self.spines = seed, spines
        self.routes, self.counters = ForwardRoutes(), Counters("io")
        self.paths = QuickPaths(config, self.routes, self.counters)
        self.config = config
        self.used, self.alternates = (50_000, 50_017), (50_004, 50_021)
        flows = tuple(Flow(SRC, DST, "udp", port, 4791, 0) for port in self.used)
        self.pair = WatchRequest(SRC, DST, "10.0.0.1", 0, flows)
        self.paths.watch([self.pair])
        for flow in flows:
            self.routes.note(flow, ("cable", *self.out(flow.source_port)), complete=True)
        self.began_s: dict[int, int] = {}
        self.second = 0

    def spine(self, port: int, way: str) -> int:
        return int.from_bytes(blake2b(f"{self.seed} {way} {port}".encode()).digest()[:8], "big") % self.spines

    def out(self, port: int) -> tuple[str, str]:
        return f"up{self.spine(port, 'out')}", f"down{self.spine(port, 'out')}"

    def back(self, port: int) -> tuple[str, str]:
        return f"back-up{self.spine(port, 'back')}", f"back-down{self.spine(port, 'back')}"

    def crossed(self, port: int) -> frozenset[str]:
        return frozenset((*self.out(port), *self.back(port)))

    @property
    def in_use(self) -> frozenset[str]:
        return frozenset[str]().union(*map(self.crossed, self.used))

    @property
    def watched(self) -> frozenset[str]:
        return self.in_use.union(*map(self.crossed, self.alternates))

    def probed(self) -> tuple[int, ...]:
        return self.paths.ports(self.pair)

    def run(self, seconds: int) -> None:
        """Trace what is probed, let commands name what is traced, choose."""
        for _ in range(seconds):
            self.second += 1
            self.began_s = {port: self.began_s.get(port, self.second) for port in self.probed()}
            traced = [port for port, at in self.began_s.items() if self.second - at >= TRACED_IN_S]
            crossing: dict[tuple[str, str], tuple[ProbePath, ...]] = {}
            for port in traced:
                self.routes.note(PathId(SRC, DST, "udp", port, 0, "fwd"), ("cable", *self.out(port)), complete=True)
                for name in self.crossed(port):
                    crossing[SRC, name] = (*crossing.get((SRC, name), ()), ProbePath(DST, port, 0))
            routes = [
                WatchedRoute(SRC, DST, 0, port in self.used, tuple(sorted(self.crossed(port))))
                for port in (*self.used, *self.alternates)
            ]
            self.paths.cover(WatchedRoutes(tuple(routes), crossing))
            self.paths.choose(self.second * S)

    def quick(self) -> list[int]:
        return [port for port in self.probed() if self.paths.rate_hz(SRC, ProbePath(DST, port, 0)) is not None]

    def missed(self, *ports: int) -> frozenset[str]:
        """Watched segments that none of these ports crosses."""
        return self.watched.difference(*map(self.crossed, ports))

    def uncovered(self) -> frozenset[str]:
        """Watched segments that no quick path crosses."""
        return self.missed(*self.quick())


@pytest.mark.parametrize("spines", [4, 16, 64])
@pytest.mark.parametrize("seed", range(10))
def test_what_any_port_crosses_is_watched_quickly_and_the_rest_is_told(seed: int, spines: int) -> None:
    fabric = Fabric(seed, spines)
    fabric.run(75)
    out_of_reach = fabric.missed(*watch_ports(CONFIG), *spare_ports(CONFIG))
    assert fabric.uncovered() == out_of_reach
    assert fabric.counters.get("shed", "watch-uncrossed") == len(out_of_reach)
    before = fabric.probed()
    fabric.run(5)
    assert fabric.probed() == before, "what is found stays, and what is not there is not sought on"


def test_spare_ports_reach_nearly_all_of_sixteen_spines() -> None:
    """Share of the segments in use that no port of their pair crosses, over 10 seeds of 20 pairs each."""
    share: dict[int, tuple[float, float]] = {}
    for spines in (4, 16, 64):
        fabrics = [Fabric(seed, spines) for seed in range(200)]
        used = sum(len(f.in_use) for f in fabrics)
        before = sum(len(f.in_use & f.missed(*watch_ports(CONFIG))) for f in fabrics)
        after = sum(len(f.in_use & f.missed(*watch_ports(CONFIG), *spare_ports(CONFIG))) for f in fabrics)
        share[spines] = before / used, after / used
    assert share[4][0] > 0 == share[4][1]
    assert share[16][0] > 0.3 and share[16][1] < 0.03
    assert share[64][0] > 0.7 and share[64][1] < 0.45


def test_where_nothing_is_missing_no_spare_port_is_probed() -> None:
    fabric = next(f for seed in range(100) if not (f := Fabric(seed, 4)).missed(*watch_ports(CONFIG)))
    for _ in range(40):
        fabric.run(1)
        assert fabric.probed() == watch_ports(CONFIG)


@pytest.mark.parametrize(
    ("nic_pps", "target_pps"), [(2_000.0, 6_400.0), (300.0, 6_400.0), (2_000.0, 40.0), (110.0, 35.0)]
)
def test_budgets_are_kept_also_while_ports_are_tried(nic_pps: float, target_pps: float) -> None:
    fabric = Fabric(1, 64, replace(CONFIG, watch_nic_pps=nic_pps, watch_target_pps=target_pps))
    for _ in range(40):
        fabric.run(1)
        rates = [fabric.paths.rate_hz(SRC, ProbePath(DST, port, 0)) or 1.0 for port in fabric.probed()]
        assert sum(rates) <= min(nic_pps, target_pps)
        assert len(rates) <= CONFIG.watch_ports + AT_ONCE + 2 * len(fabric.watched)


class TestSparePorts:
    def test_ports_are_tried_in_order_after_a_while_and_one_that_crosses_what_was_missing_stays(self) -> None:
        spares = SparePorts(range(100, 120))
        hole = frozenset({"s3"})
        spares.step(hole, {}, (), 99, 0, settled=True)
        assert list(spares.probed) == [], "a trace may be on its way"
        spares.step(hole, {}, (), 99, TRACED_NS, settled=True)
        assert list(spares.probed) == list(range(100, 100 + AT_ONCE))
        found = {103: hole, 105: hole, 106: hole}
        spares.step(hole, found, found, 99, 6 * S, settled=True)
        assert list(spares.probed) == [103, 105]
        assert not spares.missing
        spares.step(frozenset(), found, found, 99, 6 * S + HOLD_NS - 1, settled=True)
        assert list(spares.probed) == [103, 105]
        spares.step(frozenset(), found, found, 99, 6 * S + HOLD_NS, settled=True)
        assert list(spares.probed) == []

    def test_what_is_missing_there_is_sought_as_soon_as_the_watch_ports_are_traced(self) -> None:
        there = frozenset({"s3"})
        spares = SparePorts(range(100, 120))
        spares.step(there, {}, (), 99, 0, settled=False, there=there)
        assert not spares.probed
        spares.step(there, {}, (), 99, S, settled=True, there=there)
        assert spares.probed
        spares = SparePorts(range(100, 120))
        spares.step(frozenset({"back-s3"}), {}, (), 99, S, settled=True, there=there)
        assert not spares.probed, "commands may say yet that a watch port comes back by it"

    def test_nothing_is_tried_before_the_watch_ports_are_traced_unless_they_never_are(self) -> None:
        spares = SparePorts(range(100, 120))
        hole = frozenset({"s3"})
        for now_ns in (0, TRIAL_NS - 1):
            spares.step(hole, {}, (), 99, now_ns, settled=False)
            assert list(spares.probed) == []
        spares.step(hole, {}, (), 99, TRIAL_NS, settled=False)
        assert spares.probed

    def test_what_no_port_crosses_is_missing_and_sought_again_later(self) -> None:
        spares, hole = SparePorts(range(100, 112)), frozenset({"s3"})
        seen: set[int] = set()
        for second in range(120):
            spares.step(hole, {}, spares.probed, 99, second * S, settled=True)
            seen |= set(spares.probed)
            assert len(spares.probed) <= AT_ONCE
        assert seen == set(range(100, 112)) and spares.missing == hole and not spares.probed
        spares.step(hole, {}, (), 99, AGAIN_NS + 120 * S, settled=True)
        assert spares.probed and not spares.missing

    def test_a_new_hole_begins_the_search_anew(self) -> None:
        spares = SparePorts(range(100, 104))
        for second in range(60):
            spares.step(frozenset({"s3"}), {}, spares.probed, 99, second * S, settled=True)
        assert not spares.probed
        for second in range(60, 67):
            spares.step(frozenset({"s3", "s5"}), {}, spares.probed, 99, second * S, settled=True)
        assert list(spares.probed) == [100, 101, 102, 103]

    def test_no_more_than_there_is_room_for(self) -> None:
        spares, hole = SparePorts(range(100, 120)), frozenset({"s3", "s4"})
        for second in range(10):
            spares.step(hole, {}, (), 3, second * S, settled=True)
        assert list(spares.probed) == [100, 101, 102]
        spares.step(hole, {100: frozenset({"s3"}), 101: frozenset({"s4"})}, (), 1, 10 * S, settled=True)
        assert list(spares.probed) == [100]
        spares.step(hole, {}, (), -1, 11 * S, settled=True)
        assert list(spares.probed) == []
