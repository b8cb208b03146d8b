"""A lab, the shipped pipeline with its controller, the shipped agent and emulated jobs; what trials ask of them."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sdfstream.actuate import keys_io
from sdfstream.actuate.config import ActuateConfig
from sdfstream.demo.lab_source_io import lab_source
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.lab.job_io import Job
from sdfstream.records.fabric import QueuePair, host_of
from sdfstream.records.job import queue_pair
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, OUTCOME
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve import overrides_io
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings
from tests.bench.harness import SkippedError

SPEC = FabricSpec(hosts=4, rails=1, leaves=2, spines=4, rate_bps=10_000_000, queue_bytes=50_000,
                  ce_threshold_bytes=15_000)  # fmt: skip
"""Two leaves, four ways between them; a full queue is 40 ms."""
MESH = MeshSpec(peers_per_nic=None, ports_per_peer=6, rate_hz=20.0, liveness_ms=150, trace_interval_s=20.0)
HOLD_DOWN_MS = 2_000


@dataclass
class World:
    """Everything that runs, and what the bus has said of commands and findings."""

    fabric: Fabric
    running: Service
    agent: asyncio.subprocess.Process
    jobs_dir: Path
    key: bytes
    """The controller's public key."""
    operator: overrides_io.OperatorSession
    jobs: list[Job] = field(default_factory=list)
    said: list[dict[str, Any]] = field(default_factory=list)
    """Data of every command, outcome and finding, with ``topic`` and ``bus_at_ns``."""

    async def start(self, spec: JobSpec) -> Job:
        """Start an emulated job that obeys the controller and tells the pipeline."""
        job = await asyncio.to_thread(
            Job.start, self.fabric, spec, self.jobs_dir, [self.key], self.running.link, stays=False
        )
        self.jobs.append(job)
        return job

    async def change_mode(self, mode: str) -> None:
        """Change the controller's mode by a signed override, as an operator does; returns once it is in force."""
        told = overrides_io.signed(self.operator, "mode", time.time_ns(), overrides_io.SHORT_S, set_={"mode": mode})
        answers = await asyncio.to_thread(overrides_io.send, self.operator, [told])
        answer = answers.get(told["id"], {"state": "not answered"})
        if answer["state"] != "applied":
            raise RuntimeError(f"mode {mode} was not taken: {answer}")

    async def pairs(self) -> dict[str, dict[str, Any]]:
        """Every queue pair of every job by id, as its own process tells it."""

        def ask() -> dict[str, dict[str, Any]]:
            return {q["qp"]: {**q, "job": j.name} for j in self.jobs for h in j.controls for q in j.queue_pairs(h)}

        return await asyncio.to_thread(ask)

    def ways(self, pair: QueuePair, path: int | None = None) -> list[str]:
        """Directions that the queue pair's data and answers take now, by the kernels of the fabric."""
        flows = pair.flow(path), pair.answers(path)
        return [
            direction
            for f in flows
            for direction in self.fabric.path(f.src, f.dst, f.source_port, f.destination_port, f.protocol)
        ]

    def outcomes(self, since_ns: int = 0, **wanted: Any) -> list[dict[str, Any]]:
        """Outcomes that entered the bus since then, with these fields."""
        return [
            s
            for s in self.said
            if s["topic"] == OUTCOME.name
            and s["bus_at_ns"] >= since_ns
            and all(s.get(key) == value for key, value in wanted.items())
        ]

    async def until(self, what: Callable[[], bool], timeout_s: float, *, every_s: float = 0.05) -> float | None:
        """Wait for `what`; after how many seconds it held, or None."""
        began_s = time.monotonic()
        while not what():
            if time.monotonic() - began_s > timeout_s:
                return None
            await asyncio.sleep(every_s)
        return time.monotonic() - began_s

    async def armed(self, timeout_s: float = 60.0) -> None:
        """Wait until every queue pair is armed for the path that it is on; RuntimeError says which is not, and why."""
        began_s = time.monotonic()
        while time.monotonic() - began_s < timeout_s:
            pairs = await self.pairs()
            bare = [qp for qp, pair in pairs.items() if not self._is_armed(qp, pair["path"])]
            if pairs and not bare:
                return
            await asyncio.sleep(0.2)
        why = {s["target"].get("id"): s["why"] for s in self.outcomes(action="failover", state="refused")}
        told = "; ".join(f"{qp} on {pairs[qp]['path']}: {why.get(qp, 'nothing was said')}" for qp in bare)
        raise RuntimeError(f"not armed within {timeout_s:.0f} s: {told}")

    def _is_armed(self, qp: str, path: int) -> bool:
        commands = [
            s for s in self.said
            if s["topic"] == COMMAND.name and s["action"] == "failover" and s["target"].get("id") == qp
        ]  # fmt: skip
        if not commands or commands[-1]["expected"].get("path") != path:
            return False
        last = commands[-1]
        if last["expires_at_ns"] < time.time_ns():
            return False
        states = [s["state"] for s in self.outcomes(command=last["id"])]
        return bool(states) and states[-1] in ("accepted", "applied")

    async def throughput_bps(self, seconds: float, job: str | None = None) -> dict[str, float]:
        """Acknowledged payload per queue pair over `seconds` from now."""
        before, began_s = await self.pairs(), time.monotonic()
        await asyncio.sleep(seconds)
        after, took_s = await self.pairs(), time.monotonic() - began_s
        return {
            qp: (after[qp]["acknowledged_bytes"] - pair["acknowledged_bytes"]) * 8 / took_s
            for qp, pair in before.items()
            if qp in after and job in (None, pair["job"])
        }


@asynccontextmanager
async def world(
    spec: FabricSpec = SPEC,
    mesh: MeshSpec = MESH,
    actuate: ActuateConfig | None = None,
    *,
    record: Path | None = None,
) -> AsyncIterator[World]:
    """Lab, pipeline and agent while the block runs; `record`: a folder for ``recording`` and ``truth``, as a demo's."""
    try:
        fabric = Fabric.up(replace(spec, name=f"trial-{os.getpid()}"), record and record / "truth")
    except LabUnavailableError as error:
        raise SkippedError(f"no lab on this machine: {error}") from error
    config = actuate or ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS)
    async with AsyncExitStack() as stack:
        stack.enter_context(fabric)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sdf-trial-")))
        said: list[dict[str, Any]] = []
        watcher = Watcher("trial", (COMMAND.name, OUTCOME.name, FINDING.name), _keeper(said))
        settings = Settings(data=folder, actuate=config)
        operator = _operator(folder)
        running = await stack.enter_async_context(
            service(settings, record=record and record / "recording", watchers=[watcher])
        )
        agent = await stack.enter_async_context(lab_source(fabric, running, mesh))
        key = keys_io.public_key(folder / "keys" / "controller.pub")
        here = World(fabric, running, agent, running.jobs_dir, key, operator, said=said)
        try:
            yield here
        except Exception:
            log = (running.link.parent / "agent.log").read_text()[-2000:]
            state = "alive" if agent.returncode is None else f"ended with {agent.returncode}"
            print(f"    the agent ({state}) said:\n{log}", file=sys.stderr, flush=True)
            raise
        finally:
            for job in here.jobs:
                await asyncio.to_thread(job.stop)


def _operator(data: Path) -> overrides_io.OperatorSession:
    """An operator whom the controller on `data` trusts from its start on."""
    folder = data / "keys" / "operators"
    folder.mkdir(parents=True)
    signer = keys_io.private_key(data / "keys" / "trial.key")
    (data / "keys" / "trial.pub").rename(folder / "trial.pub")
    return overrides_io.OperatorSession(data, signer, "trial")


def _keeper(said: list[dict[str, Any]]) -> Callable[[Sequence[Message]], Any]:
    async def keep(messages: Sequence[Message]) -> None:
        events = [(m, m.body.data) for m in messages if isinstance(m.body, Event)]
        said.extend({**data, "topic": m.topic, "bus_at_ns": m.bus_at_ns} for m, data in events)

    return keep


def parsed(pairs: Iterable[dict[str, Any]]) -> list[QueuePair]:
    """Queue pairs as the vocabulary has them."""
    return [queue_pair(p) for p in pairs]


def host(pair: QueuePair) -> str:
    """Where the pair's sending end is."""
    return host_of(pair.src)
