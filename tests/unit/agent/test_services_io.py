"""The services of an agent between a drop directory, a process, a fake host and a list of commands."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.commands.path_watch import WatchedRoutes
from sdfstream.agent.config_file import check
from sdfstream.agent.observer import WatchRequest
from sdfstream.agent.services_io import AgentServices
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.trace.flows import FlowRequest
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import JobShard
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import JOB, OUTCOME
from tests.fixtures import control as c
from tests.fixtures.qp_process import QpProcess, qp_process

KEY = base64.b64encode(c.SIGNER.public).decode()
RECEIVED = QueuePair("h4/r0#9", 1, 0, c.DST, c.SRC, "10.0.0.1", 51_000, 4791, alternates=(51_001,), steering="socket")


@dataclass
class FakeHost(c.FakeSlots):
    """A `HostPort` that keeps the last requests."""

    name: str = "h0"
    watched: list[WatchRequest] = field(default_factory=list)
    covered: list[WatchedRoutes] = field(default_factory=list)
    traced: list[FlowRequest] = field(default_factory=list)
    answered: dict[str, str] = field(default_factory=dict)
    orders = None

    @property
    def nics(self) -> dict[str, NicConfig]:
        return {c.SRC: NicConfig(c.SRC, "lo", "10.0.0.1")}

    def steady_since_ns(self) -> Any:
        raise NotImplementedError

    def watch(self, requests: Sequence[WatchRequest]) -> None:
        self.watched = list(requests)

    def cover(self, watched: WatchedRoutes) -> None:
        self.covered.append(watched)

    def answer(self, senders: Mapping[str, str]) -> None:
        self.answered = dict(senders)

    def trace(self, requests: Sequence[FlowRequest]) -> None:
        self.traced = list(requests)


@dataclass
class Downlink:
    waiting: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    async def read(self, timeout_s: float) -> list[Message]:
        with contextlib.suppress(TimeoutError):
            return [await asyncio.wait_for(self.waiting.get(), timeout_s)]
        return []


@dataclass
class Served:
    """Services at work."""

    services: AgentServices
    host: FakeHost
    process: QpProcess
    folder: Path
    downlink: Downlink
    outputs: list[Event] = field(default_factory=list)

    async def until(self, true: Any, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                for output in self.services.on_liveness("h0", time.monotonic_ns()):
                    assert isinstance(output.body, Event)
                    self.outputs.append(output.body)
                await asyncio.sleep(0.005)

    def outcomes(self) -> list[str]:
        return [e.data["state"] for e in self.outputs if e.type == OUTCOME.name]


def config(folder: Path) -> AgentConfig:
    session = SessionConfig(c.SRC, c.DST, "10.0.4.1")
    host = HostConfig("h0", (NicConfig(c.SRC, "lo", "10.0.0.1"),), (session,))
    return AgentConfig(
        (host,), jobs_dir=str(folder / "jobs"), control=True, trusted_keys=(KEY,), control_state=str(folder / "journal")
    )


@contextlib.asynccontextmanager
async def serving(folder: Path, process: QpProcess) -> AsyncIterator[Served]:
    host, downlink = FakeHost(), Downlink()
    for path in c.PATHS:
        host.set(path + 100, c.ALIVE)
    services = AgentServices(config(folder), "boot", downlink)
    services.attach([host])
    running = asyncio.create_task(services.run())
    try:
        yield Served(services, host, process, folder, downlink)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        services.close()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "jobs").mkdir()
    with qp_process(tmp_path, [c.queue_pair()]) as process:
        shard = JobShard("job1", "h0", receives=(RECEIVED,), control=str(process.path)).as_data()
        (tmp_path / "jobs" / "job1@h0.json").write_text(json.dumps({**shard, "version": 1}))
        async with serving(tmp_path, process) as running:
            await running.until(lambda: any(e.data.get("qps") for e in running.outputs if e.type == JOB.name))
            yield running


def in_use(watched: WatchedRoutes) -> set[str]:
    """Segments that the queue pair uses."""
    return {name for route in watched.routes if route.in_use for name in route.segments}


def now_ns() -> int:
    """Steady time at which the test's controller speaks: its bus time is fixed to it."""
    return time.monotonic_ns()


async def test_jobs_are_published_watched_and_traced(made: Served) -> None:
    qp = c.queue_pair()
    assert made.host.watched == [WatchRequest(c.SRC, c.DST, "10.0.4.1", 0, (qp.flow(),))]
    assert made.host.answered == {"10.0.4.1": c.DST}
    assert [w.flow for w in made.host.traced][:1] == [qp.flow()]
    assert {w.flow for w in made.host.traced} == {qp.flow(p) for p in c.PATHS}


async def test_from_a_command_by_the_bus_to_the_move_and_back_and_over_a_restart(made: Served) -> None:
    controller = c.Controller(lease_ns=60 * c.S)
    made.downlink.waiting.put_nowait(controller.failover("f", now_ns()))
    await made.until(lambda: made.outcomes() == ["accepted"])
    assert in_use(made.host.covered[-1]) == {f"up{c.PATHS[0]}", f"down{c.PATHS[0]}"}
    assert {r.segments[0] for r in made.host.covered[-1].routes} == {f"up{path}" for path in c.PATHS}
    made.host.set(c.PATHS[0] + 100, c.SILENT)
    decided = made.services.on_liveness("h0", time.monotonic_ns())  # the one call in which it is decided and sent
    made.outputs += [output.body for output in decided]  # a quick process may have answered within the call
    deadline = time.monotonic() + 5
    while not made.process.requests and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251 (nothing of ours may run meanwhile)
    assert made.process.requests[0]["choice"] == {"path": c.PATHS[1]}
    await made.until(lambda: "applied" in made.outcomes())
    await made.until(lambda: in_use(made.host.covered[-1]) == {f"up{c.PATHS[1]}", f"down{c.PATHS[1]}"})
    moved = lambda e: e.type == JOB.name and e.data["qps"] and e.data["qps"][0]["path"] == c.PATHS[1]  # noqa: E731
    await made.until(lambda: any(moved(e) for e in made.outputs), 5)  # the job map sees it soon
    made.services.close()
    async with serving(made.folder, made.process) as again:
        again.host.set(c.PATHS[0] + 100, c.SILENT)
        await again.until(lambda: again.services.control is not None and again.services.control.executor.leases("h0"))
        again.host.set(c.PATHS[0] + 100, c.ALIVE)
        await again.until(lambda: again.outcomes() == ["undone"])
        assert made.process.path_of(c.queue_pair().qp) == c.PATHS[0]


async def test_an_ended_job_takes_its_requests_with_it(made: Served) -> None:
    (made.folder / "jobs" / "job1@h0.json").unlink()
    await made.until(lambda: not made.host.watched and not made.host.traced)


def test_control_without_a_key_is_a_wrong_setting(tmp_path: Path) -> None:
    settings = config(tmp_path)
    check(settings)
    with pytest.raises(ConfigError, match="trusted_keys"):
        check(AgentConfig(**{**{f: getattr(settings, f) for f in asdict(settings)}, "trusted_keys": ()}))
