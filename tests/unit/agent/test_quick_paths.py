"""Which watch ports are quick: before routes are known, once queue pairs are armed, when routes change, in want."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.path_watch import WatchedRoute, WatchedRoutes
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.quick_paths import HOLD_NS, QuickPaths
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.trace.routes import ForwardRoutes
from sdfstream.records.fabric import Flow, PathId
from sdfstream.records.units import NS_PER_S
from sdfstream.stats import Counters

S = NS_PER_S
SRC, DST = "h0/r0", "h4/r0"
FIRST = 49_600
CONFIG = AgentConfig(hosts=(), watch_ports=16, watch_first_port=FIRST)
SPINES = 4


class World:
    """A NIC whose watch port n goes out over spine n mod 4 and comes back over spine n div 4."""

    def __init__(self, config: AgentConfig = CONFIG) -> None:
        self.routes = ForwardRoutes()
        self.counters = Counters("io")
        self.paths = QuickPaths(config, self.routes, self.counters)
        self.now_ns = 0

    def watch(self, *flows: Flow, dst: str = DST) -> None:
        self.paths.watch([WatchRequest(SRC, dst, "10.0.4.1", 0, flows)])

    def trace(self, port: int, spine: int, dst: str = DST) -> None:
        hops = ("cable", *out(spine))
        self.routes.note(PathId(SRC, dst, "udp", FIRST + port, 0, "fwd"), hops, complete=True)

    def arm(self, *routes: tuple[int, int, bool], named: range = range(16)) -> None:
        """Routes (spine there, spine back, in use), and which ports the commands know."""
        crossing: dict[tuple[str, str], tuple[ProbePath, ...]] = {}
        for port in named:
            for name in (*out(port % SPINES), *back(port // SPINES)):
                path = ProbePath(DST, FIRST + port, 0)
                crossing[SRC, name] = (*crossing.get((SRC, name), ()), path)
        watched = tuple(WatchedRoute(SRC, DST, 0, used, (*out(i), *back(j))) for i, j, used in routes)
        self.paths.cover(WatchedRoutes(watched, crossing))

    def after(self, seconds: float) -> dict[int, float]:
        """Quick ports and their rates after so many seconds."""
        self.now_ns += round(seconds * S)
        self.paths.choose(self.now_ns)
        rates = {n: self.paths.rate_hz(SRC, ProbePath(DST, FIRST + n, 0)) for n in range(16)}
        return {n: rate for n, rate in rates.items() if rate is not None}


def out(spine: int) -> tuple[str, str]:
    return f"up{spine}", f"down{spine}"


def back(spine: int) -> tuple[str, str]:
    return f"back-up{spine}", f"back-down{spine}"


def test_while_nothing_is_known_four_ports_spread_over_all_are_quick() -> None:
    world = World()
    world.watch()
    assert world.after(0) == dict.fromkeys((0, 4, 8, 12), 100.0)


def test_an_agent_that_is_late_probes_the_same_paths_at_half_the_rate() -> None:
    world = World()
    world.watch()
    before = world.after(0)
    world.paths.take_share(0.5)
    assert world.after(0.1) == dict.fromkeys(before, 50.0)
    world.paths.take_share(1.0)
    assert world.after(0.1) == before


def test_once_routes_there_are_known_the_four_go_different_ways() -> None:
    world = World()
    world.watch()
    world.after(0)
    for port in range(16):
        world.trace(port, port % SPINES)
    assert {n % SPINES for n in world.after(1)} == {0, 1, 2, 3}
    assert len(world.after(HOLD_NS / S + 1)) == 4, "what took too much is given up after a while"


def test_the_present_route_of_a_queue_pair_is_shown_before_it_is_armed() -> None:
    world = World()
    flow = Flow(SRC, DST, "udp", 50_000, 4791, 0)
    for port in range(16):
        world.trace(port, 3 if port == 7 else 0)
    world.routes.note(flow, ("cable", *out(3)), complete=True)
    world.watch(flow)
    assert 7 in world.after(0)


def test_armed_pairs_have_what_shows_their_segments_and_tells_them_apart() -> None:
    world = World()
    world.watch()
    world.after(0)
    world.arm((0, 1, True), (2, 3, False))
    quick = set(world.after(0.01))
    assert {0, 4, 8, 12} <= quick, "what was quick stays until the others are alive"
    quick = set(world.after(HOLD_NS / S + 0.1))
    assert sum(n % 4 == 0 for n in quick) == sum(n // 4 == 1 for n in quick) == 2, "what is in use is shown twice"
    assert any(n % 4 == 2 and n // 4 != 1 for n in quick) and any(n // 4 == 3 and n % 4 != 0 for n in quick)
    assert len(quick) <= 4
    assert set(world.after(60)) == quick


def test_a_port_that_changes_its_route_is_chosen_anew_by_the_hosts_own_trace() -> None:
    world = World()
    world.watch()
    for port in range(16):
        world.trace(port, port % SPINES)
    world.arm((0, 1, True), (2, 3, False))
    world.after(0)
    before = set(world.after(HOLD_NS / S + 0.1))
    (moved,) = [n for n in before if n % 4 == 0][:1]
    world.trace(moved, 1)  # the command still says: spine 0
    after = set(world.after(1))
    assert any(n % 4 == 0 and n != moved for n in after - before) or any(n % 4 == 0 for n in before - {moved})


def test_what_two_commands_say_in_turn_does_not_make_paths_come_and_go() -> None:
    world = World()
    world.watch()
    world.arm((0, 1, True), (2, 3, False))
    seen = []
    for _ in range(20):
        world.arm((0, 1, True), (2, 3, False))
        seen.append(frozenset(world.after(1)))
        world.arm((0, 1, True), (3, 2, False))
        seen.append(frozenset(world.after(1)))
    assert len(set(seen[20:])) == 1


@pytest.mark.parametrize(
    ("pps", "rate", "most", "counted"),
    [
        (2_000.0, 100.0, 8, set()),
        (450.0, 100.0, 4, {"watch-apart"}),
        (250.0, 50.0, 4, {"watch-apart", "watch-rate"}),
        (120.0, 50.0, 2, {"watch-apart", "watch-rate", "watch-budget"}),
    ],
)
def test_a_short_budget_takes_first_what_matters_least(pps: float, rate: float, most: int, counted: set[str]) -> None:
    world = World(replace(CONFIG, watch_nic_pps=pps))
    world.watch()
    world.arm((0, 1, True), (1, 0, True), (2, 3, False), (3, 2, False))
    quick = world.after(0)
    assert 0 < len(quick) <= most and set(quick.values()) == {rate}
    slow = 16 - len(quick)
    assert sum(quick.values()) + slow * 1.0 <= pps
    assert {n % 4 for n in quick} >= {0, 1}, "routes in use come first"
    shed = {name.removeprefix("io.shed.") for name in world.counters.as_dict() if ".shed." in name}
    assert shed == counted
    assert ("watches" in world.counters.troubles.open) == ("watch-budget" in counted)
    assert world.after(1) == quick
    before = world.counters.as_dict()
    world.after(30)
    assert world.counters.as_dict() == before, "what is left out is counted once"


class TestForwardRoutes:
    def test_gaps_are_no_news_and_contradictions_are(self) -> None:
        found, path = ForwardRoutes(), PathId(SRC, DST, "udp", FIRST, 0, "fwd")
        found.note(path, ("a", None), complete=False)
        assert found.probe(SRC, DST, FIRST, 0) is None
        found.note(path, ("a", "b"), complete=True)
        version = found.version
        found.note(path, ("a", None), complete=False)
        found.note(path, ("a", "b"), complete=True)
        assert (found.probe(SRC, DST, FIRST, 0), found.version) == (("a", "b"), version)
        found.note(path, ("c", None), complete=False)
        assert found.probe(SRC, DST, FIRST, 0) is None
        assert found.version > version
        found.note(path, ("a", "b"), complete=False)  # as many routers as on some paths, not on all
        assert found.probe(SRC, DST, FIRST, 0) is None
