"""Two hosts in one agent over loopback, by either of what may carry their packets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from sdfstream.agent import nics_io
from sdfstream.agent.engine import room
from sdfstream.agent.observer import HostPort, WatchRequest
from sdfstream.bus import codec
from sdfstream.bus.conform import conform
from sdfstream.errors import UnavailableError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig, VirtualClock
from sdfstream.probes.stamp.liveness import ALIVE, SILENT
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S
from tests.fixtures.agents import RecordedAgent, running

PORT = 18_630
KINDS = pytest.mark.parametrize("kind", ["c", "numpy"])


def two_hosts(kind: str, **more: Any) -> AgentConfig:
    nics = {"a": NicConfig("a/0", "lo", "127.0.74.1"), "b": NicConfig("b/0", "lo", "127.0.74.2")}

    def host(name: str, far: str, port: int, clock: VirtualClock | None) -> HostConfig:
        session = SessionConfig(f"{name}/0", f"{far}/0", nics[far].address, PORT, (port, port + 1), rate_hz=50.0)
        return HostConfig(name, (nics[name],), (session,), virtual_clock=clock)

    wrong = VirtualClock(offset_ns=5 * NS_PER_S, wander_ns_per_sqrt_s=1_000.0, seed=3)
    hosts = (host("a", "b", 50_100, None), host("b", "a", 50_200, wrong))
    return AgentConfig(hosts, reflector_port=PORT, realtime=False, packet_engine=kind, watch_ports=2, **more)


@dataclass
class Watcher:
    """Watches what host a may ask for, once told to."""

    hosts: Sequence[HostPort] = ()
    seen: list[int] = field(default_factory=list)

    def attach(self, hosts: Sequence[HostPort]) -> None:
        self.hosts = hosts

    def on_liveness(self, host: str, now_ns: int) -> list[Any]:
        if host == "a" and (slot := self.hosts[0].slot("a/0", "b/0", 49_600, 46)) >= 0:
            assert len(self.hosts[0].steady_since_ns()) == len(self.hosts[0].states())
            self.seen.append(int(self.hosts[0].states()[slot]))
        return []


def answered(agent: RecordedAgent, **wanted: Any) -> int:
    rows = agent.rows()
    if not rows.num_rows:
        return 0
    chosen = np.array([v is not None for v in rows["t4_ns"].to_pylist()])
    for name, value in wanted.items():
        chosen &= np.array([v == value for v in rows[name].to_pylist()])
    return int(np.count_nonzero(chosen))


def assert_sound(agent: RecordedAgent) -> None:
    """Batches that are taken for sound, and whose names are written once for many, are what they are taken for."""
    for output in agent.outputs:
        if output.topic == PROBE.name:
            written = codec.read_one_batch(codec.encode_body(PROBE.name, output.body))
            assert written.equals(output.body)
            assert conform(PROBE.columns, written) == (written, 0)


@KINDS
async def test_hosts_of_one_agent_probe_each_other(kind: str) -> None:
    async with running(two_hosts(kind)) as agent:
        await agent.until(lambda: all(answered(agent, path=p) > 20 for p in (50_100, 50_101, 50_200, 50_201)))
        for role, path in (("sender", 50_100), ("reflector", 50_100), ("sender", 50_200), ("reflector", 50_201)):
            await agent.until(lambda role=role, path=path: agent.states(role=role, path=path)[-1:] == ["alive"])
        await agent.until(lambda: len(agent.events("sdf.state.topology.v1")) >= 4)
    for output in agent.outputs:
        if output.topic == "sdf.raw.probe.v1":
            names = output.body.column("src").dictionary.to_pylist()
            assert {name.split("/")[0] for name in names} == {output.key}
    assert_sound(agent)
    offsets: dict[str, list[int]] = {"a": [], "b": []}
    for row in agent.rows().to_pylist():
        if row["t4_ns"] is not None:
            offsets[row["clock_src"]].append(row["t2_ns"] - row["t1_ns"])
    assert abs(np.median(offsets["a"]) - 5 * NS_PER_S) < NS_PER_S / 10, "b's clock is wrong on purpose"
    assert abs(np.median(offsets["b"]) + 5 * NS_PER_S) < NS_PER_S / 10
    assert not [name for name in agent.final if "refused" in name or "failed" in name or "unsent" in name]
    assert agent.final["sender.answered"] > 80
    assert agent.final["reflector.answered"] > 80


@KINDS
async def test_watch_sessions_begin_and_end(kind: str) -> None:
    watcher = Watcher()
    async with running(two_hosts(kind), observer=watcher) as agent:
        await agent.until(lambda: answered(agent, path=50_100) > 5)
        before = watcher.hosts[0].generation
        watcher.hosts[0].watch([WatchRequest("a/0", "b/0", "127.0.74.2", 46)])
        await agent.until(lambda: answered(agent, path=49_600, dscp_sent=46) > 30)
        assert watcher.hosts[0].generation > before
        assert ALIVE in watcher.seen
        assert SILENT not in watcher.seen[watcher.seen.index(ALIVE) :]
        watcher.hosts[0].watch([])
        await agent.until(lambda: agent.states(role="sender", path=49_600)[-1:] == ["unknown"])
        assert watcher.hosts[0].slot("a/0", "b/0", 49_600, 46) == -1
        await asyncio.sleep(0.5)
        count = answered(agent, path=49_600)
        await asyncio.sleep(0.3)
        assert answered(agent, path=49_600) == count
        assert answered(agent, path=50_101) > 20, "the others go on"
        watcher.hosts[0].watch([WatchRequest("a/0", "c/0", "127.0.74.2", 46)])
        await agent.until(lambda: answered(agent, dst="c/0") > 5)
    assert_sound(agent)


async def test_paths_beyond_the_engine_s_room_are_counted_and_cost_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(room, "most_sessions", lambda config, nics: (1, 0))
    watcher = Watcher()
    async with running(two_hosts("c"), observer=watcher) as agent:
        await agent.until(lambda: answered(agent, path=50_200) > 5)
        watcher.hosts[0].watch([WatchRequest("a/0", "b/0", "127.0.74.2", 46)])
        await agent.until(lambda: answered(agent, path=49_600) > 10)
        assert watcher.hosts[0].slot("a/0", "b/0", 49_601, 46) == -1
        assert len(watcher.hosts[0].states()) == 4
    assert answered(agent, path=49_601) == 0
    assert agent.final["io.shed.engine-paths"] == 1


@KINDS
async def test_a_nic_goes_and_comes_back(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, away = nics_io.presence, [False]

    def presence(nic: NicConfig) -> object:
        if away[0] and nic.nic == "a/0":
            raise UnavailableError("a/0 is away")
        return real(nic)

    monkeypatch.setattr(nics_io, "presence", presence)
    async with running(two_hosts(kind)) as agent:
        await agent.until(lambda: answered(agent, path=50_100) > 5 and answered(agent, path=50_200) > 5)
        away[0] = True
        await agent.until(lambda: agent.states(role="sender", path=50_100)[-1:] == ["unknown"])
        await agent.until(lambda: agent.states(role="reflector", path=50_200)[-1:] == ["unknown"])
        await agent.until(lambda: agent.states(role="sender", path=50_200)[-1:] == ["silent"])
        sent = agent.rows().num_rows
        away[0] = False
        await agent.until(lambda: agent.states(role="sender", path=50_100)[-1:] == ["alive"])
        await agent.until(lambda: agent.states(role="sender", path=50_200)[-1:] == ["alive"])
        await agent.until(lambda: answered(agent, path=50_100) > 10 and agent.rows().num_rows > sent)
    lost = [r for r in agent.rows().to_pylist() if r["src"] == "a/0" and r["t4_ns"] is None]
    assert len(lost) <= 4, "what a NIC that is away does not send is not lost"
    assert agent.final["io.nic-away"] == agent.final["io.nic-back"] == 1


async def test_without_a_library_the_python_engines_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> None:
        raise UnavailableError("no packet engine: there is no C compiler (cc) on this machine")

    from sdfstream.agent.engine import thread_io

    monkeypatch.setattr(thread_io, "PacketEngine", _raising(refuses))
    async with running(two_hosts("auto")) as agent:
        await agent.until(lambda: answered(agent, path=50_100) > 5)
    with pytest.raises(UnavailableError, match="no C compiler"):
        async with running(two_hosts("c")):
            pass


def _raising(refuses: Callable[[], None]) -> Callable[..., None]:
    return lambda *_, **__: refuses()
