"""Traces of flows and of answers against the kernel's own routing; nothing of a trace reaches the far host."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import replace

import pytest

from sdfstream.lab import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.records.fabric import FLOW_TYPE, PATH_TYPE, Flow, PathId, flow_from
from sdfstream.records.message import Event
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.lab import SMALL, fabric, up_or_skip
from tests.fixtures.observers import RecordingObserver

__all__ = ["fabric"]
pytestmark = pytest.mark.lab
NEAR, FAR = "h00/r0", "h02/r0"
MESH = MeshSpec(rate_hz=50.0, ports_per_peer=4, liveness_ms=200, trace_rate_hz=400.0, flush_ms=20)


def hops(fabric: Fabric, src: str, dst: str, sport: int, dport: int, proto: str) -> list[str]:
    """Addresses at which the packets of a flow enter each router now."""
    route = fabric.path(src, dst, sport, dport, proto)
    return [str(ipaddress.ip_address(fabric.plan.by_direction[d][1].address)) for d in route[:-1]]


def traced(agent: RecordedAgent, kind: str) -> dict[str, dict]:
    """The last trace of each key."""
    events = [o for o in agent.outputs if isinstance(o.body, Event) and o.body.type == kind]
    return {o.key: dict(o.body.data) for o in events if isinstance(o.body, Event)}


def complete(agent: RecordedAgent, kind: str) -> set[str]:
    """Keys whose last trace is complete."""
    return {key for key, data in traced(agent, kind).items() if data["complete"]}


def flows() -> list[Flow]:
    """64 flows there, 64 back; UDP and TCP."""
    there = [Flow(NEAR, FAR, proto, port, 4791, 26) for proto in ("udp", "tcp") for port in range(50_000, 50_032)]
    return there + [flow.back for flow in there]


def agrees(found: list[str | None], true: list[str]) -> bool:
    """Whether no router is named that is not on the way; at least the spine is."""
    return len(found) == len(true) and all(h in (None, t) for h, t in zip(found, true, strict=True)) and bool(found[1])


class Spy:
    """A packet socket on a NIC that counts what reaches it from these flows."""

    def __init__(self, fabric: Fabric, nic: str, flows: list[Flow]) -> None:
        self.v6 = fabric.spec.ip_version == 6
        port = fabric.plan.nic(nic).a

        def make() -> socket.socket:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
            made.bind((port.device, 3))
            made.setblocking(False)
            return made

        self.sock = fabric.namespaces.run(port.node, make)
        wanted = [f for f in flows if f.dst == nic]
        self.pairs = {f.source_port.to_bytes(2, "big") + f.destination_port.to_bytes(2, "big") for f in wanted}

    def caught(self) -> tuple[int, int]:
        """Packets seen, and those of the flows."""
        seen = ours = 0
        while True:
            try:
                packet, where = self.sock.recvfrom(2048)
            except BlockingIOError:
                return seen, ours
            if where[2] == socket.PACKET_OUTGOING:
                continue
            seen += 1
            at = 40 if self.v6 else 20
            ours += packet[at : at + 4] in self.pairs


@pytest.mark.parametrize("version", [4, 6])
async def test_flows_and_answers_go_where_the_kernel_sends_them(version: int) -> None:
    with up_or_skip(replace(SMALL, ip_version=version)) as fabric:
        wanted, observer = flows(), RecordingObserver()
        stack = contextlib.ExitStack()
        spies = [Spy(fabric, nic, wanted) for nic in (NEAR, FAR)]
        for spy in spies:
            stack.enter_context(spy.sock)
        with stack:
            await compared(fabric, wanted, observer, spies)


async def compared(fabric: Fabric, wanted: list[Flow], observer: RecordingObserver, spies: list[Spy]) -> None:
    """Trace, and hold every trace against the oracle."""
    async with running(fabric.agent_config(MESH), observer=observer) as agent:
        await agent.until(lambda: observer.evaluations.get("h02", 0) > 3)
        for host, nic in (("h00", NEAR), ("h02", FAR)):
            own = [FlowRequest(f, fabric.plan.nic(f.dst).a.address) for f in wanted if f.src == nic]
            observer.hosts[host].trace(own)
        # a starved machine may lose a router's report: such a hop stays open, and is asked for again later
        await agent.until(lambda: {str(f) for f in wanted} <= complete(agent, FLOW_TYPE), 60)
        answers = [
            PathId(src, dst, "udp", port, 0, "rev")
            for src, dst in ((NEAR, FAR), (FAR, NEAR))
            for port in range(49_152, 49_156)
        ]
        await agent.until(lambda: {str(a) for a in answers} <= complete(agent, PATH_TYPE), 60)
    found = traced(agent, FLOW_TYPE)
    for flow in wanted:
        data = found[str(flow)]
        assert flow_from(data) == flow
        assert data["hops"] == hops(fabric, *flow[:2], *flow[3:5], flow.protocol), flow
        assert data["complete"]
    paths = traced(agent, PATH_TYPE)
    for answer in answers:
        data = paths[str(answer)]
        assert data["dir"] == "rev"
        assert data["hops"] == hops(fabric, answer.dst, answer.src, 862, answer.path, "udp"), answer
        assert data["complete"]
    for spy in spies:
        seen, ours = spy.caught()
        assert seen > 50, "the spy sees packets at all"
        assert ours == 0, "a traced packet reached the far host"
    assert {h for f in wanted for h in found[str(f)]["hops"]} > set(hops(fabric, NEAR, FAR, 50_000, 4791, "udp"))
    assert not [k for k in agent.final if "trace-" in k or "failed" in k]


async def test_flows_are_traced_anew_after_a_link_went_down(fabric: Fabric) -> None:
    """The leaf spreads its flows anew over the links it still has: every flow is found where it runs then.

    The far leaf's own reports may be lost: they are hashed, too, perhaps onto the way back that is dead.
    """
    wanted, observer = [f for f in flows() if f.src == NEAR], RecordingObserver()
    async with running(fabric.agent_config(MESH), observer=observer) as agent:
        await agent.until(lambda: observer.evaluations.get("h02", 0) > 3)
        observer.hosts["h00"].trace([FlowRequest(f, fabric.plan.nic(FAR).a.address) for f in wanted])
        await agent.until(lambda: {str(f) for f in wanted} <= traced(agent, FLOW_TYPE).keys())
        leaf, spine = fabric.path(NEAR, FAR, 50_000, 4791)[1].split("->")
        fabric.inject("--".join(sorted((leaf, spine))), "link-down")

        def agree() -> bool:
            found = traced(agent, FLOW_TYPE)
            return all(agrees(found[str(f)]["hops"], hops(fabric, *f[:2], *f[3:5], f.protocol)) for f in wanted)

        assert not agree()
        await agent.until(agree, 60)
