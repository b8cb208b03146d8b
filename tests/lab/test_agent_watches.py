"""Watch sessions on real packets: they come and go beside the mesh, and tell silence soon and only where it is."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import numpy as np
import pytest

from sdfstream.agent.commands.crossings import ProbePath
from sdfstream.agent.commands.path_watch import WatchedRoute, WatchedRoutes
from sdfstream.agent.observer import HostPort, WatchRequest
from sdfstream.lab import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.probes.stamp.liveness import ALIVE
from sdfstream.records.units import NS_PER_MS
from tests.fixtures.agents import RecordedAgent, running
from tests.fixtures.lab import fabric
from tests.fixtures.observers import RecordingObserver, watch_request

__all__ = ["fabric"]
pytestmark = pytest.mark.lab
PORTS = range(49_600, 49_608)
QUICK_NS = 60 * NS_PER_MS
"""A path with this limit or less is quick."""
SRC, DST = "h00/r0", "h02/r0"
MESH = MeshSpec(rate_hz=50.0, ports_per_peer=2, trace_interval_s=0.0)


def links_of(fabric: Fabric, port: int) -> list[str]:
    """Link directions that a probe from SRC to DST crosses between leaves and spines, there and back."""
    return fabric.path(SRC, DST, port)[1:-1] + fabric.path(DST, SRC, 862, port)[1:-1]


def slots(host: HostPort, fabric: Fabric, requested: WatchRequest, link: str) -> list[int]:
    """Slots of the quick ones of a watched pair's paths that cross this link there or back."""
    a, b = link.split("--")
    crossing = [port for port in PORTS if {f"{a}->{b}", f"{b}->{a}"} & set(links_of(fabric, port))]
    found = [host.slot(requested.src, requested.dst, port, requested.dscp) for port in crossing]
    return [slot for slot in found if host.limit_ns(slot) <= QUICK_NS]


def watched_routes(fabric: Fabric, requested: WatchRequest) -> WatchedRoutes:
    """Two routes in use and two alternates, each that of a watch port, as commands would say it."""
    crossing: dict[tuple[str, str], tuple[ProbePath, ...]] = {}
    for port in PORTS:
        for link in links_of(fabric, port):
            crossing[SRC, link] = (*crossing.get((SRC, link), ()), ProbePath(DST, port, requested.dscp))
    routes = (
        WatchedRoute(SRC, DST, requested.dscp, number < 2, tuple(links_of(fabric, port)))
        for number, port in enumerate(PORTS[:4])
    )
    return WatchedRoutes(tuple(routes), crossing)


def lost(agent: RecordedAgent, *, watched: bool) -> tuple[int, int]:
    """Rows of mesh or watch sessions, and how many have no answer."""
    rows = agent.rows()
    path = rows["path"].to_numpy()
    unanswered = np.array([v is None for v in rows["t4_ns"].to_pylist()])
    mine = (path >= PORTS.start) == watched
    return int(mine.sum()), int(unanswered[mine].sum())


async def test_they_come_and_go_without_a_lost_probe_of_the_mesh(fabric: Fabric) -> None:
    observer = RecordingObserver()
    wanted = [
        watch_request(fabric, SRC, DST),
        watch_request(fabric, "h00/r1", "h02/r1"),
        watch_request(fabric, SRC, "h03/r0"),
    ]
    async with running(fabric.agent_config(MESH), observer=observer) as agent:
        host = await observer.host(agent, "h00")
        await agent.until(lambda: len(host.states()) and (host.states() == ALIVE).all())
        mesh = len(host.states())
        before = host.steady_since_ns().copy()
        for some in ([0], [0, 1], [1, 2], [], [0, 1, 2], [2]):
            requested = [wanted[i] for i in some]
            generation = host.generation
            host.watch(requested)
            await agent.until(lambda requested=requested: all(observer.alive(w, PORTS) for w in requested))
            await agent.until(lambda generation=generation: host.generation > generation)
            await asyncio.sleep(0.3)
            for i, w in enumerate(wanted):
                numbers = [host.slot(w.src, w.dst, port, w.dscp) for port in PORTS]
                assert (min(numbers) >= 0) == (i in some)
        assert (host.steady_since_ns()[:mesh] == before).all(), "the mesh's paths kept number and state"
        await asyncio.sleep(0.3)
    assert not [k for k in agent.final if any(w in k for w in (".unsent", "failed", "port-taken", "nic-away"))]
    n, gone = lost(agent, watched=False)
    assert n > 1000
    assert gone == 0
    rows = agent.rows()
    for path in (49_152, 49_153):
        mine = (rows["path"].to_numpy() == path) & (np.array(rows["src"].to_pylist()) == SRC)
        mine &= np.array(rows["dst"].to_pylist()) == DST
        seq = np.sort(rows["seq"].to_numpy()[mine])
        assert (np.diff(seq) == 1).all(), "no probe of the mesh lacks its row"
    assert not observer.falls


@pytest.mark.parametrize("kind", ["numpy", "c"])
async def test_silence_is_found_soon_and_only_where_it_is(fabric: Fabric, kind: str) -> None:
    """20 black holes on a link that watched routes use. The bound is for a machine that may be busy."""
    observer, trials, times = RecordingObserver(), 20, []
    requested = watch_request(fabric, SRC, DST)
    async with running(replace(fabric.agent_config(MESH), packet_engine=kind), observer=observer) as agent:
        host = await observer.host(agent, "h00")
        host.cover(watched_routes(fabric, requested))
        host.watch([requested])
        await agent.until(lambda: observer.alive(requested, PORTS))
        links = sorted({link.replace("->", "--") for port in PORTS[:4] for link in fabric.path(SRC, DST, port)[1:2]})
        for trial in range(trials):
            await agent.until(lambda: observer.alive(requested, PORTS))
            link = links[trial % len(links)]
            hit = slots(host, fabric, requested, link)
            assert hit, "each link of a watched route is crossed by a quick path"
            observer.falls.clear()
            began_ns = time.monotonic_ns()
            fabric.inject(link, "black-hole")

            def fell(hit: list[int] = hit) -> set[int]:
                return {slot for _, who, slot in observer.falls if who == "h00"} & set(hit)

            await agent.until(lambda hit=hit, fell=fell: fell() == set(hit))
            times.append(max(at for at, _, slot in observer.falls if slot in hit) - began_ns)
            watched = {host.slot(SRC, DST, port, requested.dscp) for port in PORTS}
            slow = {slot for slot in watched if host.limit_ns(slot) > QUICK_NS}
            wrong = {slot for _, who, slot in observer.falls if who == "h00" and slot in watched - slow} - set(hit)
            assert not wrong, "a path that does not use the link was called silent"
            fabric.heal()
    in_ms = np.sort(times) / 1e6
    assert in_ms[int(0.95 * trials) - 1] < 200, in_ms.round(1).tolist()
    silent = [c for e in agent.events("sdf.raw.liveness.v1") for c in e["changes"] if c["state"] == "silent"]
    assert {c["path"] for c in silent if c["role"] == "sender"} & set(PORTS), "what the observer saw is published"


async def test_a_nic_that_goes_and_comes_back_takes_its_watch_sessions_with_it(fabric: Fabric) -> None:
    observer = RecordingObserver()
    requested = watch_request(fabric, SRC, DST)
    async with running(fabric.agent_config(MESH), observer=observer) as agent:
        host = await observer.host(agent, "h00")
        host.watch([requested])
        await agent.until(lambda: observer.alive(requested, PORTS))
        fabric.inject(SRC, "link-down", end="h00/r0")
        await agent.until(lambda: not observer.alive(requested, PORTS))
        fabric.heal()
        await agent.until(lambda: observer.alive(requested, PORTS))
    assert not [k for k in agent.final if "failed" in k]
