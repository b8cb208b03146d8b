"""Sessions with packets as large as the MTU: which pairs get one, how large, what of the budget is left for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sdfstream.agent.config_file import read_agent
from sdfstream.agent.large.sessions import OWNER, LargeSessions, large_ports, most_large
from sdfstream.agent.planned import PlannedSessions
from sdfstream.agent.sessions import sender_sockets
from sdfstream.agent.slots import DRAIN_NS, SessionSlots
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, SessionConfig
from sdfstream.records.units import NS_PER_S as S
from sdfstream.stats import Counters
from tests.fixtures.host_plans import CONFIG, NICS, plan, session

LARGE = replace(CONFIG, large_hz=2.0)


class World:
    """A host's large sessions beside the planned ones, and the MTUs of its NICs."""

    def __init__(self, config: AgentConfig = LARGE, sessions: Sequence[SessionConfig] = ()) -> None:
        self.mtus: dict[str, int | None] = {"h0/r0": 4_200, "h0/r1": 9_000}
        self.counters, self.slots = Counters("io"), SessionSlots()
        host = HostConfig("h0", tuple(NICS.values()), tuple(sessions))
        self.large = LargeSessions(config, host, self.mtus.get, self.counters, self.slots)
        configured = [(s.src, s.dst, port, s.dscp) for s in sessions for port in s.source_ports]
        self.planned = PlannedSessions("h0", config, NICS, configured, self.counters, self.slots, self.large.beside)
        self.large.nics_changed()

    def step(self, now_ns: int = 0) -> list[SessionConfig]:
        """The large sessions that begin."""
        self.planned.change(now_ns)
        return list(self.large.change(self.planned.large, now_ns).begin.values())


def configured(dst: str = "h1/r0", src: str = "h0/r0", **more: object) -> SessionConfig:
    return replace(SessionConfig(src, dst, "10.0.0.2", 4_000, (50_100, 50_101), clock_dst="c"), **more)  # type: ignore[arg-type]


def test_a_pair_gets_one_session_as_large_as_its_nic_allows() -> None:
    sessions = [
        configured(dscp=26, ecn=1),
        configured(dscp=46),
        configured("h2/r0", src="h0/r1"),
        configured("h3/r0", transport="rocev2"),
    ]
    world = World(sessions=sessions)
    begun = world.step()
    assert begun == [
        SessionConfig(
            "h0/r0", "h1/r0", "10.0.0.2", 4_000, (49_151,), dscp=26, ecn=1, size_bytes=4_200, rate_hz=2.0, clock_dst="c"
        ),
        SessionConfig("h0/r1", "h2/r0", "10.0.0.2", 4_000, (49_151,), size_bytes=9_000, rate_hz=2.0, clock_dst="c"),
    ]
    assert world.large.sessions == begun
    assert not world.large.change(world.planned.large, 1)


def test_none_without_the_setting() -> None:
    world = World(CONFIG, [configured()])
    world.planned.take(plan([session()]))
    assert world.step() == []
    assert (most_large(CONFIG, CONFIG.hosts[0]), large_ports(CONFIG)) == (0, ())
    assert ("h0/r0", 49_151) in sender_sockets(LARGE, LARGE.hosts[0])
    assert ("h0/r0", 49_151) not in sender_sockets(CONFIG, CONFIG.hosts[0])


def test_a_loopback_s_mtu_is_more_than_reflectors_receive() -> None:
    world = World(sessions=[configured()])
    world.mtus["h0/r0"] = 65_536
    assert [s.size_bytes for s in world.step()] == [9_216]


def test_without_an_mtu_there_is_no_session_and_the_agent_says_so() -> None:
    world = World(sessions=[configured()])
    world.mtus["h0/r0"] = None
    world.large.nics_changed()
    assert world.step() == []
    said = "the MTU of h0/r0 is not known, so it sends no probes as large as that"
    assert world.counters.troubles.open == {"mtu of h0/r0": said}
    world.mtus["h0/r0"] = 1_500
    world.large.nics_changed()
    assert [s.size_bytes for s in world.step(S)] == [1_500]
    assert not world.counters.troubles.open


def test_another_mtu_counts_when_sessions_change_next() -> None:
    world = World(sessions=[configured()])
    world.step()
    world.mtus["h0/r0"] = 1_500
    assert world.step(S) == []
    world.planned.take(plan([session("h2/r0")]))
    change = world.large.change(world.planned.large, 2 * S)
    assert [slot for slot in change.end] == [0]
    assert {(s.dst, s.size_bytes) for s in change.begin.values()} == {("h1/r0", 1_500), ("h2/r0", 1_500)}


def test_planned_pairs_get_one_behind_the_plan_s_own() -> None:
    world = World(sessions=[configured("h1/r0")])
    sessions = [session("h1/r0"), session("h2/r0", dscp=26), session("h2/r0", 50_001), session("h3/r0", src="h0/r1")]
    world.planned.take(plan([*sessions]))
    world.planned.change(0)
    begun = world.large.change(world.planned.large, 0).begin.values()
    assert [(s.src, s.dst, s.dscp, s.size_bytes) for s in begun] == [
        ("h0/r0", "h1/r0", 0, 4_200),
        ("h0/r0", "h2/r0", 26, 4_200),
        ("h0/r1", "h3/r0", 0, 9_000),
    ]
    world.planned.take(plan([session("h2/r0")], at=2))
    change = world.large.change(world.planned.large, S)
    assert len(change.end) == 2, "h3's, and h2's is of another class now"


class TestBudget:
    def test_large_ones_are_the_first_to_be_left_out(self) -> None:
        world = World(replace(LARGE, mesh_budget_pps=67.0))
        world.planned.take(plan([session(f"h{n}/r0") for n in range(1, 5)]))
        assert [s.dst for s in world.planned.large] == ["h1/r0"], "4 · 16 + 2 ≤ 67"
        assert world.planned.beyond == 0, "the planner's own all run"
        assert world.counters.get("shed", "plan-large") == 3
        assert "3 of 4 sessions of h0 with packets as large as the MTU" in world.counters.troubles.open["large"]
        world.planned.take(plan([session("h1/r0")], at=2))
        assert not world.counters.troubles.open

    def test_they_count_towards_what_one_address_gets(self) -> None:
        world = World(replace(LARGE, mesh_target_pps=33.0))
        world.planned.take(plan([session("h1/r0"), session("h1/r0", 50_001)]))
        assert world.planned.large == []
        assert len(world.planned.change(0).begin) == 2

    def test_an_agent_that_is_late_gives_them_up_first(self) -> None:
        world = World()
        world.planned.take(plan([session(f"h{n}/r0") for n in range(1, 5)]))
        assert len(world.planned.large) == 4
        world.planned.take_share(0.9)
        assert world.planned.large == []
        world.planned.take_share(1.0)
        assert len(world.planned.large) == 4

    def test_a_nic_that_comes_back_brings_its_sessions(self) -> None:
        world = World()
        world.mtus["h0/r0"] = None
        world.planned.take(plan([session()]))
        assert world.step() == []
        world.mtus["h0/r0"] = 9_000
        world.planned.nics_changed()
        assert [s.size_bytes for s in world.step(S)] == [9_000]


HOSTS = [
    {
        "host": "a",
        "nics": [{"nic": "a/0", "device": "lo", "address": "127.0.0.1"}],
        "sessions": [{"src": "a/0", "dst": "b/0", "dst_address": "127.0.0.2", "source_ports": [50_100]}],
    }
]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"large_port": 1_023}, "large_port must lie within 1024 and 65535"),
        ({"reflector_port": 49_151}, "large_port: port 49151 is the reflector's own"),
        ({"large_port": 49_600}, r"large_port: 49600 is one of the watch ports \(see watch_first_port\)"),
        ({"large_port": 49_663}, r"large_port: 49663 is one of the watch ports \(see watch_first_port\)"),
        ({"large_port": 49_160, "mesh": "auto"}, r"large_port: 49160 is one of the mesh plan's ports"),
        ({"large_port": 50_100}, r"hosts.0.sessions.0.source_ports.0: 50100 is the port of the largest packets"),
    ],
)
def test_a_port_of_others_is_refused(more: dict[str, object], sentence: str) -> None:
    assert read_agent({"hosts": HOSTS, "large_hz": 1}).large_hz == 1.0
    with pytest.raises(ConfigError, match=sentence):
        read_agent({"hosts": HOSTS, "large_hz": 1, **more})
    if more.get("large_port") != 1_023:
        assert read_agent({"hosts": HOSTS, **more}).large_hz == 0, "where there are none nothing clashes"


@pytest.mark.parametrize("mesh", ["configured", "auto"])
def test_no_more_run_than_there_is_room_for(mesh: str) -> None:
    config = replace(LARGE, mesh=mesh)
    host = HostConfig("h0", tuple(NICS.values()), tuple(configured(f"h{n}/r0") for n in range(1, 4)))
    world = World(config, host.sessions)
    most = most_large(config, host)
    assert most == 3 + 1_024 * (mesh == "auto")
    assert len(world.step()) == 3
    more = [replace(configured(f"x{n}/r0"), source_ports=(49_151,), rate_hz=2.0) for n in range(1_100)]
    assert len(world.large.change(more, S).begin) == most - 3
    assert world.counters.get("shed", "large") == 1_100 - (most - 3)
    assert len(world.slots.running(OWNER)) == most
    assert not world.large.change(more, S + DRAIN_NS), "none has become free"
