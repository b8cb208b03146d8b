"""A fabric comes up fast, forwards as the oracle says, and heals exactly."""

from __future__ import annotations

import socket
import time
from collections import Counter

import pytest

from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from tests.fixtures.lab import up_or_skip

pytestmark = pytest.mark.lab


def send_from(fabric: Fabric, src: str, dst: str, port: int, packets: int, dest_port: int = 9000) -> None:
    """`packets` UDP packets over one source port, from a socket of the sender's namespace."""
    cable = fabric.plan.nic(src)
    with fabric.namespaces.run(cable.a.node, lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
        sender.bind((cable.a.address, port))
        for _ in range(packets):
            sender.sendto(b"x" * 64, (fabric.plan.nic(dst).a.address, dest_port))


def test_default_fabric_is_up_in_half_a_second() -> None:
    took_ms = []
    for _ in range(3):
        start = time.perf_counter()
        with up_or_skip(FabricSpec()) as fabric:
            took_ms.append((time.perf_counter() - start) * 1e3)
            assert len(fabric.plan.kinds) == 16
    print(f"lab: 16 namespaces, 32 cables up in {', '.join(f'{t:.0f}' for t in took_ms)} ms")
    assert min(took_ms) < 500


def test_oracle_names_the_links_that_count_the_packets() -> None:
    """64 ports × 8 packets: every direction of the fabric counts exactly what the oracle says."""
    with up_or_skip(FabricSpec(rate_bps=1_000_000_000, burst_bytes=100_000)) as fabric:
        before = {d: fabric.counters(d)[0] for d in fabric.plan.by_direction}
        expected: Counter[str] = Counter()
        for port in range(49152, 49152 + 64):
            for direction in fabric.path("h00/r0", "h04/r0", port, 9000):
                expected[direction] += 8
            send_from(fabric, "h00/r0", "h04/r0", port, 8)
        after = {d: fabric.counters(d)[0] - before[d] for d in fabric.plan.by_direction}
        forward = {d: n for d, n in after.items() if d in expected or (n and d.startswith("l0->s"))}
        assert forward == dict(expected)
        assert len({d for d in expected if d.startswith("l0->s")}) == 4


def test_same_seed_same_map_other_seed_other_map() -> None:
    maps = []
    for seed in (1, 1, 2):
        with up_or_skip(FabricSpec(hash_seed=seed)) as fabric:
            maps.append([fabric.path("h00/r0", "h04/r0", port)[1] for port in range(49152, 49152 + 128)])
    assert maps[0] == maps[1]
    assert 0.1 < sum(a == b for a, b in zip(maps[0], maps[2], strict=True)) / 128 < 0.45


def test_link_down_moves_its_flows_and_heals_exactly(fabric: Fabric) -> None:
    ports = range(49152, 49152 + 64)
    before = [fabric.path("h00/r0", "h02/r0", port) for port in ports]
    for target, end in (("l0--s1", None), ("l0--s1", "s1"), ("s0", None), ("h00/r0", None), ("h00/r0", "h00/r0")):
        fault = fabric.inject(target, "link-down", end=end)
        assert [fabric.path("h00/r0", "h02/r0", port) for port in ports] != before
        fabric.heal(fault.id)
        assert [fabric.path("h00/r0", "h02/r0", port) for port in ports] == before


def test_agent_config_keeps_to_the_rail_and_reaches_every_host(fabric: Fabric) -> None:
    config = fabric.agent_config(MeshSpec(peers_per_nic=1, ports_per_peer=4))
    assert [host.host for host in config.hosts] == list(fabric.spec.host_names)
    sessions = [s for host in config.hosts for s in host.sessions]
    assert all(s.src[-2:] == s.dst[-2:] and len(s.source_ports) == 4 for s in sessions)
    assert {s.dst for s in sessions} == set(fabric.plan.nics)
