"""A fabric comes up fast, forwards as the oracle says, and tells an agent all it needs."""

from __future__ import annotations

import socket
import time
from collections import Counter
from pathlib import Path

import pytest

from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.probes.net.netns_io import inside
from tests.fixtures.lab import send, udp, up_or_skip

pytestmark = pytest.mark.lab
FAST = 1_000_000_000
"""A link rate at which the oracle tests never queue."""


def test_default_fabric_is_up_in_half_a_second() -> None:
    took_ms = []
    for _ in range(4):
        start = time.perf_counter()
        with up_or_skip(FabricSpec()) as fabric:
            took_ms.append((time.perf_counter() - start) * 1e3)
            assert len(fabric.plan.kinds) == 16
    print(f"lab: 16 namespaces, 32 cables, CE programs: up in {', '.join(f'{t:.0f}' for t in took_ms)} ms")
    assert min(took_ms) < 500


@pytest.mark.parametrize("version", [4, 6])
def test_oracle_names_the_links_that_count_the_packets(version: int) -> None:
    """64 ports × 8 packets: every direction counts what the oracle says, and the other spines count nothing."""
    with up_or_skip(FabricSpec(rate_bps=FAST, burst_bytes=100_000, ip_version=version)) as fabric:
        mismatches, used = 0, set()
        noise = 0 if version == 4 else 4  # IPv6 nodes tell of their multicast groups now and then.
        with udp(fabric, "h04/r0", 9000):
            for port in range(49_152, 49_152 + 64):
                expected = fabric.path("h00/r0", "h04/r0", port, 9000)
                before = {d: fabric.counters(d)[0] for d in fabric.plan.by_direction}
                send(fabric, "h00/r0", "h04/r0", port, 8)
                moved = {d: fabric.counters(d)[0] - before[d] for d in fabric.plan.by_direction}
                mismatches += {d for d, n in moved.items() if n > noise} != set(expected)
                mismatches += version == 4 and any(moved[d] != 8 for d in expected)
                used.add(expected[1])
        print(f"lab: oracle against counters, IPv{version}: {mismatches} mismatches of 64 ports")
        assert mismatches == 0
        assert len(used) == 4


def test_connected_sockets_take_the_named_path_too() -> None:
    """Hash policy 1 would send most of these elsewhere: connected sockets carry a random hash."""
    with up_or_skip(FabricSpec(rate_bps=FAST, burst_bytes=100_000)) as fabric:
        sent: Counter[str] = Counter()
        for port in range(49_152, 49_152 + 32):
            with udp(fabric, "h04/r0", 9000), udp(fabric, "h00/r0", port) as sender:
                sender.connect((fabric.plan.nic("h04/r0").a.address, 9000))
                for _ in range(4):
                    sender.send(b"x")
            sent[fabric.path("h00/r0", "h04/r0", port, 9000)[1]] += 4
        assert {d: fabric.counters(d)[0] for d in sent} == dict(sent)


def test_same_seed_same_map_other_seed_other_map() -> None:
    maps = []
    for seed in (1, 1, 2):
        with up_or_skip(FabricSpec(hash_seed=seed)) as fabric:
            if not fabric.features.fixed_hash_seed:
                pytest.skip("; ".join(fabric.features.missing))
            maps.append([fabric.path("h00/r0", "h04/r0", port)[1] for port in range(49_152, 49_152 + 128)])
    assert maps[0] == maps[1]
    assert 0.1 < sum(a == b for a, b in zip(maps[0], maps[2], strict=True)) / 128 < 0.45


def test_a_hash_without_source_port_gives_every_port_one_path() -> None:
    with up_or_skip(FabricSpec(hash_ignores_source_port=True)) as fabric:
        assert len({fabric.path("h00/r0", "h04/r0", port)[1] for port in range(49_152, 49_152 + 64)}) == 1


def test_ports_via_finds_only_ports_that_cross(fabric: Fabric) -> None:
    found = fabric.ports_via("l0->s1", "h00/r0", "h02/r0", 5)
    assert len(found) == 5
    assert all("l0->s1" in fabric.path("h00/r0", "h02/r0", port) for port in found)
    assert fabric.ports_via("l0->s1", "h00/r0", "h01/r0", 5) == []


def test_agent_config_keeps_to_the_rail_and_reaches_every_host(fabric: Fabric) -> None:
    config = fabric.agent_config(MeshSpec(peers_per_nic=1, ports_per_peer=4))
    assert [host.host for host in config.hosts] == list(fabric.spec.host_names)
    sessions = [s for host in config.hosts for s in host.sessions]
    assert all(s.src[-2:] == s.dst[-2:] and len(s.source_ports) == 4 for s in sessions)
    assert {s.dst for s in sessions} == set(fabric.plan.nics)


def test_swept_ports_cover_every_fabric_direction() -> None:
    """The mesh knows nothing of the hash; 16 ports per peer still cover all 32 leaf-spine directions."""
    with up_or_skip(FabricSpec()) as fabric:
        config = fabric.agent_config(MeshSpec(peers_per_nic=2))
        covered = {
            direction
            for host in config.hosts
            for s in host.sessions
            for port in s.source_ports
            for direction in fabric.path(s.src, s.dst, port, s.dst_port)
        }
        assert covered >= {d for d, (a, b) in fabric.plan.by_direction.items() if a.end == a.node and b.end == b.node}


def test_an_agent_enters_by_path_and_is_reached(fabric: Fabric) -> None:
    """What another process does: open the path, setns, bind to the device; the answer comes back to it."""
    config = fabric.agent_config()
    nic = config.hosts[0].nics[1]
    assert nic.netns == fabric.netns_path("h00")
    with Path(nic.netns).open("rb") as namespace:
        near = inside(namespace.fileno(), lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    with near, udp(fabric, "h02/r1", 862) as far:
        near.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.device.encode())
        near.bind((nic.address, 49_152))
        near.settimeout(5)
        far.settimeout(5)
        near.sendto(b"there", (fabric.plan.nic("h02/r1").a.address, 862))
        _, back = far.recvfrom(64)
        far.sendto(b"and back", back)
        assert near.recv(64) == b"and back"


def test_a_trace_names_the_link_each_router_was_entered_by(fabric: Fabric) -> None:
    """TTL 1, 2, 3 over one source port: the answers come from the declared far ends of the oracle's links."""
    ends = {}
    for link in fabric.topology()["links"]:
        for own, far in (("a", "b"), ("b", "a")):
            ends[f"{link[own]['node']}->{link[far]['node']}"] = link[far]["address"]
    with udp(fabric, "h00/r0", 50_000) as sender:
        sender.setsockopt(socket.SOL_IP, 11, 1)  # IP_RECVERR
        for ttl, direction in enumerate(fabric.path("h00/r0", "h02/r0", 50_000, 33_434)[:3], start=1):
            sender.setsockopt(socket.SOL_IP, socket.IP_TTL, ttl)
            sender.sendto(b"x", (fabric.plan.nic("h02/r0").a.address, 33_434))
            assert _icmp_sender(sender) == ends[direction]


def _icmp_sender(sender: socket.socket) -> str:
    end = time.monotonic() + 5
    while time.monotonic() < end:
        try:
            _, control, _, _ = sender.recvmsg(512, 512, socket.MSG_ERRQUEUE)
        except BlockingIOError:
            time.sleep(0.001)
            continue
        # struct sock_extended_err (16 bytes), then the sockaddr_in of who answered: its address at 4.
        return socket.inet_ntoa(control[0][2][20:24])
    raise AssertionError("no ICMP answer within 5 s")


def test_two_labs_side_by_side_do_not_see_each_other() -> None:
    with up_or_skip(FabricSpec(hosts=2, rails=1, leaves=2, spines=1)) as one:
        with up_or_skip(FabricSpec(hosts=2, rails=1, leaves=2, spines=1)) as two:
            one.inject("l0--s0", "link-down")
            assert len(one.path("h00/r0", "h01/r0", 49_152)) == 1
            assert len(two.path("h00/r0", "h01/r0", 49_152)) == 4
        one.heal()
        assert len(one.path("h00/r0", "h01/r0", 49_152)) == 4
