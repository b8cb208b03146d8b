"""The companion of an agent beside a drop directory, a process, a fake host and a list of commands."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sdfstream.agent.companion import WatchWish
from sdfstream.agent.companion_io import AgentCompanion, flow_wishes, trusted, watch_wishes
from sdfstream.agent.config_file import check
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.trace.flows import FlowWish
from sdfstream.records.job import JobShard, QueuePair
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import JOB, OUTCOME
from tests.fixtures import control as c
from tests.fixtures.qp_process import QpProcess, qp_process

KEY = base64.b64encode(c.SIGNER.public).decode()
RECEIVED = QueuePair("h4/r0#9", 1, 0, c.DST, c.SRC, "10.0.0.1", 51_000, 4791, alternates=(51_001,), steering="socket")


@dataclass
class FakeHost(c.FakeSlots):
    """A `HostPort` that remembers wishes."""

    name: str = "h0"
    wished: list[WatchWish] = field(default_factory=list)
    traced: list[FlowWish] = field(default_factory=list)

    @property
    def nics(self) -> dict[str, NicConfig]:
        return {c.SRC: NicConfig(c.SRC, "lo", "10.0.0.1")}

    def steady_since_ns(self) -> Any:
        raise NotImplementedError

    def watch(self, wishes: Sequence[WatchWish]) -> None:
        self.wished = list(wishes)

    def trace(self, wishes: Sequence[FlowWish]) -> None:
        self.traced = list(wishes)


@dataclass
class Downlink:
    waiting: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)

    async def read(self, timeout_s: float) -> list[Message]:
        with contextlib.suppress(TimeoutError):
            return [await asyncio.wait_for(self.waiting.get(), timeout_s)]
        return []


@dataclass
class Beside:
    """A companion at work."""

    companion: AgentCompanion
    host: FakeHost
    process: QpProcess
    folder: Path
    downlink: Downlink
    outputs: list[Event] = field(default_factory=list)

    async def until(self, true: Any, seconds: float = 20) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                for output in self.companion.judged("h0", time.monotonic_ns()):
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
async def beside(folder: Path, process: QpProcess) -> AsyncIterator[Beside]:
    host, downlink = FakeHost(), Downlink()
    for path in c.PATHS:
        host.set(path + 100, c.ALIVE)
    companion = AgentCompanion(config(folder), "boot", downlink)
    companion.attach([host])
    running = asyncio.create_task(companion.run())
    try:
        yield Beside(companion, host, process, folder, downlink)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        companion.close()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Beside]:
    (tmp_path / "jobs").mkdir()
    with qp_process(tmp_path, [c.queue_pair()]) as process:
        part = JobShard("job1", "h0", receives=(RECEIVED,), control=str(process.path)).as_data()
        (tmp_path / "jobs" / "job1@h0.json").write_text(json.dumps({**part, "version": 1}))
        async with beside(tmp_path, process) as running:
            await running.until(lambda: any(e.data.get("qps") for e in running.outputs if e.type == JOB.name))
            yield running


def now_ns() -> int:
    """Steady time at which the test's controller speaks: its bus time is fixed to it."""
    return time.monotonic_ns()


async def test_jobs_are_told_watched_and_traced(made: Beside) -> None:
    assert made.host.wished == [WatchWish(c.SRC, c.DST, "10.0.4.1", 0)]
    qp = c.queue_pair()
    assert [w.flow for w in made.host.traced][:1] == [qp.flow()]
    assert {w.flow for w in made.host.traced} == {qp.flow(p) for p in c.PATHS}


async def test_from_a_command_by_the_bus_to_the_move_and_back_and_over_a_restart(made: Beside) -> None:
    controller = c.Controller(lease_ns=60 * c.S)
    made.downlink.waiting.put_nowait(controller.failover("f", now_ns()))
    await made.until(lambda: made.outcomes() == ["accepted"])
    made.host.set(c.PATHS[0] + 100, c.SILENT)
    made.companion.judged("h0", time.monotonic_ns())  # the one call in which it is decided and sent
    deadline = time.monotonic() + 5
    while not made.process.heard and time.monotonic() < deadline:
        time.sleep(0.001)  # noqa: ASYNC251 (nothing of ours may run meanwhile)
    assert made.process.heard[0]["choice"] == {"path": c.PATHS[1]}
    await made.until(lambda: "applied" in made.outcomes())
    moved = lambda e: e.type == JOB.name and e.data["qps"] and e.data["qps"][0]["path"] == c.PATHS[1]  # noqa: E731
    await made.until(lambda: any(moved(e) for e in made.outputs), 5)  # the job map sees it soon
    made.companion.close()
    async with beside(made.folder, made.process) as again:
        again.host.set(c.PATHS[0] + 100, c.SILENT)
        await again.until(lambda: again.companion.control is not None and again.companion.control.executor.leases("h0"))
        again.host.set(c.PATHS[0] + 100, c.ALIVE)
        await again.until(lambda: again.outcomes() == ["undone"])
        assert made.process.path_of(c.queue_pair().qp) == c.PATHS[0]


async def test_an_ended_job_takes_its_wishes_with_it(made: Beside) -> None:
    (made.folder / "jobs" / "job1@h0.json").unlink()
    await made.until(lambda: not made.host.wished and not made.host.traced)


def test_flows_in_use_come_first_and_answers_need_an_address() -> None:
    pair = c.queue_pair()
    wishes = flow_wishes([pair], [RECEIVED], {c.DST: "10.0.4.1"}.get)
    assert [w.flow for w in wishes][:2] == [pair.flow(), RECEIVED.answers()]
    assert [w.dst_address for w in wishes][:2] == ["10.0.4.1", "10.0.4.1"]
    assert len(wishes) == 5
    assert flow_wishes([], [RECEIVED], {}.get) == []
    assert watch_wishes([pair, pair]) == [WatchWish(c.SRC, c.DST, "10.0.4.1", 0)]


def test_trusted_keys_are_base64_or_files(tmp_path: Path) -> None:
    raw, text = tmp_path / "raw.pub", tmp_path / "text.pub"
    raw.write_bytes(c.SIGNER.public)
    text.write_text(KEY + "\n")
    for keys in ((KEY,), (str(raw),), (str(text),), (KEY, str(raw))):
        assert trusted(keys).refuses(c.SIGNER.sign({"a": 1})) == ""
    for keys in ((), ("nonsense",), (str(tmp_path / "none"),), (base64.b64encode(b"short").decode(),)):
        with pytest.raises(ConfigError):
            trusted(keys)


def test_control_without_a_key_is_a_wrong_setting(tmp_path: Path) -> None:
    settings = config(tmp_path)
    check(settings)
    with pytest.raises(ConfigError, match="trusted_keys"):
        check(AgentConfig(**{**{f: getattr(settings, f) for f in asdict(settings)}, "trusted_keys": ()}))
