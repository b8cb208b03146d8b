"""A link whose MTU is smaller than the others': large probes over it fall silent, small ones do not notice."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.lab import udp, up_or_skip

pytestmark = pytest.mark.lab
LARGE, LINK = 49_151, "l0--s0"
MESH = MeshSpec(
    ports_per_peer=4, rate_hz=10.0, large_hz=5.0, liveness_ms=300, reflector_port=8620, trace_interval_s=2.0
)
PORTS = range(MESH.first_port, MESH.first_port + MESH.ports_per_peer)


def spec(version: int) -> FabricSpec:
    return FabricSpec(hosts=4, rails=1, leaves=2, spines=2, ip_version=version)


def crosses(fabric: Fabric, src: str, dst: str, port: int) -> bool:
    """Whether probes over this source port, or their answers, cross the link."""
    there = fabric.path(src, dst, port, MESH.reflector_port)
    back = fabric.path(dst, src, MESH.reflector_port, port)
    return any(hop in ("l0->s0", "s0->l0") for hop in (*there, *back))


def pairs(fabric: Fabric) -> list[tuple[str, str]]:
    nics = [f"{host}/r0" for host in fabric.spec.host_names]
    return [(src, dst) for src in nics for dst in nics if src != dst]


def state(agent: RecordedAgent, pair: tuple[str, str], port: int) -> str:
    return "".join(agent.states(role="sender", src=pair[0], dst=pair[1], path=port)[-1:])


def passes(fabric: Fabric, octets: int, port: int, family: int) -> bool:
    """Whether a packet of `octets` of IP goes from h00 to h02 over this source port."""
    far = fabric.plan.nic("h02/r0").a.address
    with udp(fabric, "h00/r0", port) as sender, udp(fabric, "h02/r0", 9_000) as receiver:
        layer, discover = (socket.IPPROTO_IP, 10) if family == 4 else (socket.IPPROTO_IPV6, 23)
        sender.setsockopt(layer, discover, 3)  # as probes: never fragmented, whatever was learnt of the path
        receiver.settimeout(0.2)
        sender.sendto(bytes(octets - (28 if family == 4 else 48)), (far, 9_000))
        try:
            return len(receiver.recv(2_000)) > 0
        except TimeoutError:
            return False


@pytest.mark.parametrize("version", [4, 6])
def test_the_fault_drops_larger_packets_in_both_directions(tmp_path: Path, version: int) -> None:
    up_or_skip(spec(version)).down()
    with Fabric.up(spec(version), tmp_path) as fabric:
        port = fabric.ports_via("l0->s0", "h00/r0", "h02/r0", 1, 9_000)[0]
        elsewhere = fabric.ports_via("l0->s1", "h00/r0", "h02/r0", 1, 9_000)[0]
        for target in (LINK, "h02/r0", "l1--s0"):
            fault = fabric.inject(target, "mtu")
            for size, whole in ((1_300, True), (1_301, False), (1_500, False)):
                assert passes(fabric, size, port, version) is whole, (target, size)
            assert passes(fabric, 1_500, elsewhere, version) is (target != "h02/r0")
            fabric.heal(fault.id)
            assert passes(fabric, 1_500, port, version), target
        one, two = fabric.inject(LINK, "mtu", octets=1_400), fabric.inject(LINK, "mtu", octets=1_350)
        assert not passes(fabric, 1_360, port, version)
        fabric.heal(two.id)
        assert passes(fabric, 1_400, port, version)
        assert not passes(fabric, 1_401, port, version)
        fabric.heal(one.id)
    line = json.loads((tmp_path / "faults.jsonl").read_text().splitlines()[0])
    assert (line["kind"], line["target"], line["direction"]) == ("mtu", LINK, None)
    assert line["parameters"] == {"octets": 1_300}
    assert line["healed_at_ns"] > line["at_ns"]


async def test_in_a_healthy_lab_all_large_paths_live() -> None:
    with up_or_skip(spec(4)) as fabric:
        async with running(fabric.agent_config(MESH)) as agent:
            wanted = [(pair, port) for pair in pairs(fabric) for port in (LARGE, *PORTS)]
            await agent.until(lambda: all(state(agent, *path) == "alive" for path in wanted))
            await agent.until(lambda: sum(r["path"] == LARGE for r in agent.rows().to_pylist()) > 60)
        rows = agent.rows().to_pylist()
        assert {r["size_bytes"] for r in rows if r["path"] == LARGE} == {1_500}
        assert {r["size_bytes"] for r in rows if r["path"] != LARGE} == {128}
        assert {(r["src"], r["dst"]) for r in rows if r["path"] == LARGE} == set(pairs(fabric))
        assert not [name for name in agent.final if "unsent" in name or "refused" in name]


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("engine", ["c", "numpy"])
async def test_large_paths_over_a_link_with_a_small_mtu_fall_silent_alone(engine: str, version: int) -> None:
    with up_or_skip(spec(version)) as fabric:
        every = [(pair, port) for pair in pairs(fabric) for port in (LARGE, *PORTS)]
        over = [(pair, port) for pair, port in every if crosses(fabric, *pair, port)]
        large = [path for path in over if path[1] == LARGE]
        assert 0 < len(large) < len(pairs(fabric)) and len(over) > len(large)
        async with running(replace(fabric.agent_config(MESH), packet_engine=engine)) as agent:
            await agent.until(lambda: all(state(agent, *path) == "alive" for path in every))
            for _ in range(2):
                fabric.inject(LINK, "mtu")
                await agent.until(lambda: all(state(agent, *path) == "silent" for path in large))
                before = len(agent.rows())
                await agent.until(lambda before=before: len(agent.rows()) > before + 500)
                assert [path for path in every if state(agent, *path) != "alive"] == large
                fabric.heal()
                await agent.until(lambda: all(state(agent, *path) == "alive" for path in every))
    failed = [name for name in agent.final if any(what in name for what in ("unsent", "failed", "socket-error"))]
    assert not failed, "routers answer that packets are too long; no send fails for it"
    small = {tuple(agent.states(role="sender", src=p[0], dst=p[1], path=n)) for p, n in every if (p, n) not in large}
    assert {s[-1] for s in small} == {"alive"} and not any("silent" in s for s in small), "none has noticed"
