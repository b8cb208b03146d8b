"""How far the packets of silent paths get by real routers, and which of two links in a row detect blames by it."""

from __future__ import annotations

import asyncio

import pytest

from sdfstream.detect.stage import DetectStage
from sdfstream.lab import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.records.fabric import PATH_TYPE, SILENT_TYPE
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import LIVENESS, TOPOLOGY
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.drive import Reported, run
from tests.fixtures.lab import fabric
from tests.lab.test_probes_trace_flows import complete, traced

__all__ = ["fabric"]
pytestmark = pytest.mark.lab
MESH = MeshSpec(rate_hz=50.0, ports_per_peer=8, liveness_ms=200, trace_rate_hz=400.0, flush_ms=20)


def silent_traces(agent: RecordedAgent) -> list[dict]:
    return list(traced(agent, SILENT_TYPE).values())


def judged(fabric: Fabric, agent: RecordedAgent) -> Reported:
    """What detect says of what the agent published, at the times at which it did."""
    events = [o for o in agent.outputs if isinstance(o.body, Event) and o.topic in (LIVENESS.name, TOPOLOGY.name)]
    at_ns = [int(o.body.data.get("seen_at_ns", o.body.data.get("traced_at_ns", 0))) for o in events]  # type: ignore[union-attr]
    first_ns = min(ns for ns in at_ns if ns)
    plan = Event("sdf.state.topology.declared.v1", "lab", "t", 0, fabric.topology())
    messages = [Message(TOPOLOGY.name, "declared", plan, first_ns - 1, 0)]
    messages += [
        Message(o.topic, o.key, o.body, ns, n) for n, (ns, o) in enumerate(zip(at_ns, events, strict=True), 1) if ns
    ]
    return run(DetectStage(), sorted(messages, key=lambda m: m.bus_at_ns))


@pytest.mark.parametrize(
    ("dead", "near", "link"),
    [("l0->s0", 1, "l0--s0"), ("s0->l2", 2, "l2--s0"), ("l0--s0", 1, "l0--s0"), ("l2--s0", 2, "l2--s0")],
)
async def test_traces_of_silent_paths_end_before_what_is_dead_and_name_it(
    fabric: Fabric, dead: str, near: int, link: str
) -> None:
    """On a rail of two leaves every path over a spine crosses both of its links; switches believe both alive."""
    config = fabric.agent_config(MESH)
    paths = sum(len(session.source_ports) for host in config.hosts for session in host.sessions)
    async with running(config) as agent:
        await agent.until(lambda: len(complete(agent, PATH_TYPE)) == 2 * paths, 60)
        routes = {key: data["hops"] for key, data in traced(agent, PATH_TYPE).items()}
        fabric.inject(dead, "gray-loss", share=1.0)
        await agent.until(lambda: len(silent_traces(agent)) >= 2)
        await agent.until(lambda: any(s["hops"][-1] is None for s in silent_traces(agent)))
        await asyncio.sleep(2.5)  # heartbeats, once a second, say what lives beside
        fabric.heal()
    for data in silent_traces(agent):
        key = "{src}>{dst} {transport}:{path} dscp{dscp} {dir}".format(**data)
        whole, reached = routes[key], data["hops"]
        assert all(a in (None, b) for a, b in zip(reached, whole, strict=True))
        if data["src"] in ("h00/r0", "h01/r0") and reached[-1] is None:
            assert [hop is not None for hop in reached] == [n < near for n in range(3)], "as far as the dead link"
    found = [(kind, name) for _, kind, name in judged(fabric, agent).opened() if kind == "link-down"]
    assert found == [("link-down", link)]
