"""An agent with UDP and RoCEv2 sessions side by side over loopback; queue pairs on a wire in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.verbs.carried.thread_io import RoceThread
from tests.fixtures.agents import RecordedAgent, running
from tests.unit.verbs.carried.world import WireDevices, free_port
from tests.unit.verbs.probing.wire import WireEnd

NEAR, FAR = "127.0.72.1", "127.0.72.2"
PORT = 18_622
LIVENESS = "sdf.raw.liveness.v1"


def agent(host: str, own: str, peer: str, far: str, meeting: int, engine: str) -> AgentConfig:
    udp = SessionConfig(f"{host}/0", f"{peer}/0", far, PORT, (50_000,), rate_hz=50.0)
    roce = replace(udp, transport="rocev2", source_ports=(50_100,), size_bytes=160)
    hosts = (HostConfig(host, (NicConfig(f"{host}/0", "lo", own),), (udp, roce)),)
    more: dict[str, Any] = {"reflector_port": PORT, "realtime": False, "packet_engine": engine}
    return AgentConfig(hosts, rdma_meeting_port=meeting, **more)


def carrier(config: AgentConfig, wire: dict[int, WireEnd], address: str) -> tuple[RoceThread, WireDevices]:
    devices = WireDevices(wire)
    devices.address = address
    devices.refresh = lambda: frozenset({"rxlo"} - devices.gone)  # type: ignore[method-assign]
    return RoceThread(config, devices, survey_s=0.05), devices  # type: ignore[arg-type]


class Ports:
    """Counts its readings."""

    readings = 0

    def __init__(self, *_: object) -> None: ...

    def read(self, now_ns: int) -> pa.RecordBatch | None:
        Ports.readings += 1
        return None


def transports(a: RecordedAgent, *, answered: bool = False) -> set[str]:
    rows = a.rows().to_pylist() if a.rows().num_rows else []
    return {r["transport"] for r in rows if not answered or r["t4_ns"] is not None}


@pytest.mark.parametrize("engine", ["auto", "numpy"])
async def test_both_transports_give_rows_and_liveness(engine: str) -> None:
    meeting, wire = free_port(), dict[int, WireEnd]()
    near, far = agent("a", NEAR, "b", FAR, meeting, engine), agent("b", FAR, "a", NEAR, meeting, engine)
    (here, devices), (there, _) = carrier(near, wire, NEAR), carrier(far, wire, FAR)
    async with running(near, Ports, roce=here) as a, running(far, roce=there):
        await a.until(lambda: transports(a, answered=True) == {"udp", "rocev2"})
        for transport in ("udp", "rocev2"):
            for role in ("sender", "reflector"):
                await a.until(lambda t=transport, r=role: a.states(role=r, transport=t)[-1:] == ["alive"])
        Ports.readings = 0
        devices.gone.add("rxlo")
        await a.until(lambda: a.states(role="sender", transport="rocev2")[-1:] == ["unknown"])
        await a.until(lambda: Ports.readings >= 1)
        await a.until(lambda: any(e.get("troubles") for e in a.events(LIVENESS)))
        told = next(e["troubles"] for e in reversed(a.events(LIVENESS)) if e.get("troubles"))
        assert [t["what"] for t in told] == ["rdma.a/0"]
        devices.gone.clear()
        await a.until(lambda: a.states(role="sender", transport="rocev2")[-1:] == ["alive"])
        assert a.states(role="sender", transport="udp")[-1:] == ["alive"]
    assert a.final["rocev2.sender.answered"] > 0
    assert a.final["rdma.device-away"] == 1


async def test_without_a_device_the_udp_sessions_run_and_the_trouble_is_told() -> None:
    meeting = free_port()
    near, far = agent("a", NEAR, "b", FAR, meeting, "auto"), agent("b", FAR, "a", NEAR, meeting, "auto")
    here, devices = carrier(near, {}, NEAR)
    devices.missing = "pyverbs is not installed (Debian: python3-pyverbs)"
    async with running(near, roce=here) as a, running(far):
        await a.until(lambda: len(a.rows()) > 50)
        await a.until(lambda: any(e.get("troubles") for e in a.events(LIVENESS)))
        told = next(e["troubles"] for e in a.events(LIVENESS) if e.get("troubles"))
        assert [(t["what"], t["why"]) for t in told] == [
            ("rdma.a/0", f"its RoCEv2 sessions do not run: {devices.missing}")
        ]
        assert transports(a) == {"udp"}
