"""Probes as large as the MTU over one cable: by either engine and family, with HMACs; an MTU that shrinks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.namespaces import Namespaces, namespaces

__all__ = ["namespaces"]
pytestmark = pytest.mark.lab
PORT, LARGE = 8620, 49_151
ADDRESSES = {4: ("10.7.0.0", "10.7.0.1"), 6: ("fd07::", "fd07::1")}


def pair(net: Namespaces, mtu_bytes: int, version: int = 4, **more: Any) -> tuple[AgentConfig, AgentConfig]:
    """Hosts a and b, joined by one cable; a probes b, b answers and sends no large ones."""
    net.add("a", "b")
    net.cable("a", "r0", "b", "r0")
    for host, octet in (("a", 0), ("b", 1)):
        net.ip(host, f"link set r0 mtu {mtu_bytes}", f"addr add 10.7.0.{octet}/31 dev r0")
        net.ip(host, f"addr add fd07::{octet}/127 dev r0 nodad")
    near, far = ADDRESSES[version]
    common: dict[str, Any] = {"reflector_port": PORT, "liveness_ms": 100, "trace_interval_s": 0.0, "realtime": False}
    session = SessionConfig("a/r0", "b/r0", far, PORT, (50_000,), dscp=26, rate_hz=20.0)

    def host(name: str, address: str, sessions: tuple[SessionConfig, ...]) -> tuple[HostConfig]:
        nic = NicConfig(f"{name}/r0", "r0", address, net.path(name), plane="backend")
        return (HostConfig(name, (nic,), sessions, read_ports=False),)

    return (
        AgentConfig(host("a", near, (session,)), large_hz=10.0, **common, **more),
        AgentConfig(host("b", far, ()), reflector_allow=(f"{near}/{32 if version == 4 else 128}",), **common, **more),
    )


def answered(agent: RecordedAgent, path: int) -> list[dict[str, Any]]:
    rows = agent.rows()
    return [r for r in rows.to_pylist() if r["path"] == path and r["t4_ns"] is not None] if rows.num_rows else []


@pytest.mark.parametrize("key", [None, b"a key"], ids=["open", "authenticated"])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("mtu_bytes", [1_280, 4_200, 9_000])
@pytest.mark.parametrize("engine", ["c", "numpy"])
async def test_large_packets_go_and_come_back_whole(
    namespaces: Namespaces, engine: str, mtu_bytes: int, version: int, key: bytes | None
) -> None:
    near, far = pair(namespaces, mtu_bytes, version, packet_engine=engine, hmac_key=key)
    async with running(near) as a, running(far) as b:
        await a.until(lambda: len(answered(a, LARGE)) > 5 and len(answered(a, 50_000)) > 5)
        assert a.states(role="sender", path=LARGE)[-1:] == ["alive"]
    for row in answered(a, LARGE):
        assert (row["size_bytes"], row["dscp_sent"], row["dscp_fwd"], row["ecn_fwd"]) == (mtu_bytes, 26, 26, 2)
        assert row["t1_ns"] < row["t2_ns"] < row["t3_ns"] < row["t4_ns"]
    assert {row["size_bytes"] for row in answered(a, 50_000)} == {128 if key is None else 196 + 20 * (version == 6)}
    assert not [n for n in {**a.final, **b.final} if "refused" in n or "unsent" in n or "failed" in n]


@pytest.mark.parametrize("engine", ["c", "numpy"])
async def test_packets_that_have_become_too_long_are_not_sent_and_counted(namespaces: Namespaces, engine: str) -> None:
    near, far = pair(namespaces, 9_000, packet_engine=engine)
    async with running(near) as a, running(far):
        await a.until(lambda: len(answered(a, LARGE)) > 5)
        namespaces.ip("a", "link set r0 mtu 4000")
        before = len(a.rows().to_pylist())
        await a.until(lambda: len(a.rows().to_pylist()) > before + 40)
        count = len(answered(a, LARGE))
        await a.until(lambda: len(a.rows().to_pylist()) > before + 80)
        assert len(answered(a, LARGE)) == count
        assert a.states(role="sender", path=50_000)[-1:] == ["alive"], "the others go on"
        namespaces.ip("a", "link set r0 mtu 9000")
        await a.until(lambda: len(answered(a, LARGE)) > count + 5)
    assert 5 < a.final["io.unsent.emsgsize"] < 200, "one try again a packet"
    kinds = {row["t1_kind"] for row in answered(a, LARGE)[-3:]}
    assert kinds == {1}, "stamps are told apart as before"


async def test_a_nic_that_comes_later_gets_its_large_session_then(namespaces: Namespaces) -> None:
    near, far = pair(namespaces, 4_200)
    namespaces.ip("a", "link set r0 down")
    async with running(replace(near, port_interval_ms=100)) as a, running(far):
        await asyncio.sleep(0.3)
        namespaces.ip("a", "link set r0 up")
        await a.until(lambda: len(answered(a, LARGE)) > 3)
    assert {row["size_bytes"] for row in answered(a, LARGE)} == {4_200}
