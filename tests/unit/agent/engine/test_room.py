"""Numbers of the packet engine: no two hosts share one, and all their paths fit."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sdfstream.agent.engine.room import engine_room
from sdfstream.agent.large.sessions import MOST_PLANNED
from sdfstream.agent.sessions import sender_sockets
from sdfstream.agent.watches import most_sessions
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.stamp.datagrams import LONGEST_PAYLOAD


def config(hosts: int, mesh: str = "configured") -> AgentConfig:
    def host(i: int) -> HostConfig:
        nics = tuple(NicConfig(f"h{i}/{n}", "lo", f"127.{i + 1}.{n}.1") for n in range(2))
        session = SessionConfig(nics[0].nic, "far/0", "127.9.9.9", 862, (50_000, 50_001), rate_hz=10.0)
        return HostConfig(f"h{i}", nics, (session,) * (i + 1))

    return AgentConfig(tuple(host(i) for i in range(hosts)), mesh=mesh)


@pytest.mark.parametrize("mesh", ["configured", "auto"])
def test_ranges_of_hosts_lie_side_by_side(mesh: str) -> None:
    made = config(4, mesh)
    room, ranges = engine_room(made, lambda interval_ns: 16)
    held = [ranges[h.host] for h in made.hosts]
    assert [r.number for r in held] == [0, 1, 2, 3]
    for before, after in itertools.pairwise(held):
        assert after.first_path == before.first_path + before.paths
        assert after.first_slot == before.first_slot + before.senders + before.reflectors
        assert after.first_nic == before.first_nic + 2
    assert room.paths == held[-1].first_path + held[-1].paths
    assert room.nics == 8
    for host, numbers in zip(made.hosts, held, strict=True):
        assert numbers.paths >= sum(len(s.source_ports) for s in host.sessions) + 1_000
        assert numbers.senders == len(sender_sockets(made, host))


def test_quick_paths_and_candidates_have_room_by_their_intervals() -> None:
    made = config(1)
    room, ranges = engine_room(made, lambda interval_ns: 1_000 if interval_ns < 20_000_000 else 1)
    quick, candidates = most_sessions(made, 2)
    assert (quick, candidates) == (2 * 2 * 40 + 2 * 16, 128 * 16), "twice a NIC's budget at half the rate, and a pair"
    assert quick * 1_000 <= room.exchanges < quick * 1_000 + candidates + 100
    assert ranges["h0"].paths >= quick + candidates


def test_what_the_engine_demands_of_its_rings() -> None:
    room, _ = engine_room(config(3), lambda interval_ns: 16)
    for capacity in (room.command_words, room.rows, room.events):
        assert capacity & (capacity - 1) == 0
    assert room.command_words >= 32 * room.paths


def test_the_longest_probe_fits() -> None:
    made = config(1)
    assert engine_room(made, lambda _: 16)[0].width_bytes == LONGEST_PAYLOAD, "of any agent, by either family"
    long = replace(made.hosts[0], sessions=(replace(made.hosts[0].sessions[0], size_bytes=60_000),))
    assert engine_room(replace(made, hosts=(long,)), lambda _: 16)[0].width_bytes == 60_000


@pytest.mark.parametrize("mesh", ["configured", "auto"])
def test_large_sessions_have_room(mesh: str) -> None:
    small, small_ranges = engine_room(config(3, mesh), lambda _: 16)
    large, large_ranges = engine_room(replace(config(3, mesh), large_hz=2.0), lambda _: 16)
    more = 1 + (MOST_PLANNED if mesh == "auto" else 0)
    for host in ("h0", "h1", "h2"):
        assert large_ranges[host].paths == small_ranges[host].paths + more, "one pair, however many sessions"
        assert large_ranges[host].senders == small_ranges[host].senders + 2, "a socket a NIC"
    assert large.exchanges == small.exchanges + 3 * 16 * more
