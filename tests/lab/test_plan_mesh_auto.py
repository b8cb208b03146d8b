"""Agents that take their sessions from the plan, on real packets: they reach a mesh whose clocks agree, a host leaves
and comes back, the controller goes and another one comes."""

from __future__ import annotations

import asyncio
import base64
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sdfstream import settings
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.demo.lab_source_io import declared
from sdfstream.detect.stage import DetectStage
from sdfstream.lab import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.stage import PlanStage
from sdfstream.probes.config import VirtualClock
from sdfstream.records.mesh import HOST_TYPE, HostHere, HostPlan, host_here, host_plan
from sdfstream.records.message import Event
from sdfstream.records.topics import CLOCK, FINDING, MESH, PROBE, TOPOLOGY
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import live_io
from sdfstream.runtime.control_io import RunControl
from sdfstream.sync.stage import SyncStage
from tests.fixtures.host_plans import SIGNER
from tests.fixtures.lab import fabric

__all__ = ["fabric"]
pytestmark = pytest.mark.lab
TRUTH_NS = {"h00": 0.0, "h01": 5e6, "h02": -3e6, "h03": 123_456.0}
"""Each host's clock, beside the machine's."""
SPEC = MeshSpec(
    trace_interval_s=10.0,
    large_hz=1.0,
    virtual_clocks={host: VirtualClock(offset_ns=offset) for host, offset in TRUTH_NS.items()},
)
PLAN = PlanConfig(mesh="auto", leave_ns=4 * NS_PER_S, trace_settle_ns=3 * NS_PER_S, repeat_ns=60 * NS_PER_S)
BUDGET_PPS, LARGE = 300.0, 49_151


@dataclass
class World:
    """A lab, a bus, agents of two hosts each, and what was said."""

    fabric: Fabric
    folder: Path
    bus: MemoryBus
    agents: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    plans: dict[str, HostPlan] = field(default_factory=dict)
    here: dict[str, HostHere] = field(default_factory=dict)
    rows: dict[tuple[str, str, int], list[int]] = field(default_factory=dict)
    """Sequence numbers by (sender, reflector, source port)."""
    answered: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of hosts, lately."""
    sent: list[tuple[int, str, int]] = field(default_factory=list)
    """(t1 in seconds, sender's host, probes)."""
    clocks: dict[str, tuple[float, str, float]] = field(default_factory=dict)
    """Offset, status, bound."""
    findings: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Kind, status, subject."""

    def start(self, name: str, *hosts: str) -> None:
        """An agent process for `hosts`, without a session of its own."""
        config = self.fabric.agent_config(SPEC, hosts)
        config = replace(
            config,
            hosts=tuple(replace(h, sessions=(), read_ports=False) for h in config.hosts),
            mesh="auto",
            trusted_keys=(base64.b64encode(SIGNER.public).decode(),),
            mesh_budget_pps=BUDGET_PPS,
            realtime=False,
        )
        file = self.folder / f"{name}.yaml"
        file.write_text(settings.dump(config))
        command = [
            sys.executable,
            "-m",
            "sdfstream",
            "agent",
            "--config",
            str(file),
            "--bus",
            f"link:{self.folder}/link",
        ]
        with (self.folder / f"{name}.log").open("ab") as out:
            self.agents[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def stop(self, name: str, how: int = signal.SIGTERM) -> None:
        agent = self.agents.pop(name)
        agent.send_signal(how)
        agent.wait(10)

    async def listen(self) -> None:
        reader = await self.bus.subscribe("test", [MESH.name, TOPOLOGY.name, PROBE.name, CLOCK.name, FINDING.name])
        while True:
            for message in await reader.read(timeout_s=0.2):
                body = message.body
                if isinstance(body, pa.RecordBatch):
                    (self._probes if message.topic == PROBE.name else self._states)(body)
                elif message.topic == MESH.name:
                    self.plans[message.key] = host_plan(body.data)
                elif message.topic == FINDING.name:
                    data = body.data
                    self.findings[data["id"]] = (data["kind"], data["status"], data["subject"]["id"])
                elif isinstance(body, Event) and body.type == HOST_TYPE:
                    self.here[body.source] = host_here(body.data)

    def _probes(self, batch: pa.RecordBatch) -> None:
        columns = (batch.column(n).to_pylist() for n in ("src", "dst", "path", "seq", "t1_ns", "t4_ns"))
        for src, dst, path, seq, t1, t4 in zip(*columns, strict=True):
            self.rows.setdefault((src, dst, path), []).append(seq)
            self.sent.append((t1, src.split("/")[0], dst.split("/")[0]))
            if t4 is not None:
                self.answered.add((src.split("/")[0], dst.split("/")[0]))

    def _states(self, batch: pa.RecordBatch) -> None:
        columns = (batch.column(n).to_pylist() for n in ("clock", "offset_ns", "status", "err_ns", "kind"))
        for clock, offset, status, err, kind in zip(*columns, strict=True):
            if kind == "causal":
                self.clocks[clock] = (offset, status, err)

    def obeyed(self, *hosts: str) -> bool:
        """Every one of `hosts` says that it obeys its last plan."""
        return all(
            h in self.plans and h in self.here and self.here[h].plan == self.plans[h].version for h in hosts
        ) and all(self.plans[h].sessions or self.plans[h].probers for h in hosts)

    def large(self) -> bool:
        """Each pair of NICs of the plans exchanges packets as large as the MTU."""
        pairs = {(s.src, s.dst) for plan in self.plans.values() for s in plan.sessions}
        return pairs <= {(src, dst) for src, dst, port in self.rows if port == LARGE}

    def joined(self, *hosts: str) -> bool:
        """Each two of `hosts` exchange probes."""
        pairs = {(min(a, b), max(a, b)) for a, b in self.answered}
        return all((a, b) in pairs for i, a in enumerate(hosts) for b in hosts[i + 1 :])

    def agree(self, *hosts: str, within_ns: float = 2e6) -> bool:
        """The clocks of `hosts` are in step with the truth."""
        if any(h not in self.clocks or self.clocks[h][1] != "synced" for h in hosts):
            return False
        base = self.clocks[hosts[0]][0] - TRUTH_NS[hosts[0]]
        return all(abs(self.clocks[h][0] - TRUTH_NS[h] - base) < within_ns for h in hosts)

    async def until(self, true: Callable[[], object], seconds: float = 90.0) -> None:
        try:
            async with asyncio.timeout(seconds):
                while not true():  # noqa: ASYNC110 (what is waited for is no event)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            logs = "".join(f"--- {n}\n{(self.folder / f'{n}.log').read_text()}" for n in self.agents)
            pytest.fail(f"plans {self.plans}\nhere {self.here}\nclocks {self.clocks}\n{logs}")


@asynccontextmanager
async def controller(bus: MemoryBus) -> AsyncIterator[PlanStage]:
    """A plan stage and a sync stage on `bus`."""
    control, stage = RunControl(), PlanStage(PLAN, SIGNER)
    work = asyncio.create_task(live_io.run(bus, [stage, SyncStage(), DetectStage()], [], time.time_ns, control))
    try:
        yield stage
    finally:
        control.stop.set()
        await work


@asynccontextmanager
async def world(fabric: Fabric, folder: Path) -> AsyncIterator[World]:
    bus = MemoryBus(time.time_ns, boot_id="test")
    made = World(fabric, folder, bus)
    listening = asyncio.create_task(made.listen())
    link = LinkServer(bus, folder / "link")
    await link.start()
    try:
        yield made
    finally:
        for name in list(made.agents):
            made.stop(name, signal.SIGKILL)
        await link.close()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


async def _another_listens(w: World, fabric: Fabric, before: dict[str, HostPlan], hosts: int) -> None:
    """A controller that takes over changes no plan until all agents have spoken again."""
    async with controller(w.bus) as another:
        await w.bus.publish([declared(fabric)])
        for _ in range(140):
            await asyncio.sleep(0.05)
            if another.counters.get("told"):
                break
            assert w.plans == before
        # agents speak once a minute: on a slow run all of them may do so within these seven seconds
        spoken = another.counters.get("joined") == hosts
        assert spoken or not another.counters.get("told"), "it listens until all have spoken again"


async def test_agents_reach_a_mesh_that_heals(fabric: Fabric, tmp_path: Path) -> None:
    hosts = ("h00", "h01", "h02", "h03")
    async with world(fabric, tmp_path) as w:
        async with controller(w.bus) as stage:
            await asyncio.sleep(0.1)
            await w.bus.publish([declared(fabric)])
            w.start("a", "h00", "h01")
            w.start("b", "h02")
            w.start("c", "h03")
            await w.until(lambda: w.obeyed(*hosts))
            await w.until(lambda: w.joined(*hosts))
            await w.until(lambda: w.agree(*hosts))
            await w.until(w.large)
            assert stage.figures["degree_min"] == 3, "four clocks: everyone with everyone"
            await w.until(lambda: stage.figures["pairs_known"] == stage.figures["pairs"] == 2, 120.0)
            await w.until(lambda: w.obeyed(*hosts))
            assert stage.figures["ways_crossed"] == stage.figures["ways_known"] >= 2 * 2 * 2 - 1
            # a host leaves: the others stop probing it, and their own sessions do not lose a probe
            quiet = {key for key in w.rows if "h03" not in key[0] + key[1]}
            w.stop("c")
            await w.until(lambda: not w.plans["h03"].sessions and stage.figures["hosts"] == 3)
            await w.until(lambda: w.obeyed(*hosts[:3]))
            assert not any(s.dst.startswith("h03") for h in hosts for s in w.plans[h].sessions)
            w.answered.clear()
            await w.until(lambda: w.joined(*hosts[:3]))
            assert w.agree(*hosts[:3])
            # a starved machine's packets come late or not at all; that a thing broke is more than that
            kinds = ("nic-down", "link-down", "host-silent", "miscabled")
            broken = [f for f in w.findings.values() if f[0] in kinds]
            assert all("h03" in subject for _, _, subject in broken), f"who ends a session is not broken: {broken}"

            # it comes back
            w.start("c", "h03")
            await w.until(lambda: stage.figures["hosts"] == 4 and w.obeyed(*hosts))
            w.answered.clear()
            await w.until(lambda: w.joined(*hosts))
            await w.until(lambda: w.agree(*hosts))
            still = {(s.src, s.dst, s.path) for h in hosts for s in w.plans[h].sessions} & quiet
            await asyncio.sleep(0.5)
            for key in still:
                seq = np.sort(w.rows[key])
                assert (np.diff(seq) == 1).sum() >= len(seq) - 2, f"{key}: a change of others disturbed it"
        # without a controller the mesh goes on
        before = dict(w.plans)
        w.answered.clear()
        await w.until(lambda: w.joined(*hosts))
        await _another_listens(w, fabric, before, len(hosts))
        second_ns = max(t for t, *_ in w.sent) - NS_PER_S
        for host in hosts:
            packets = sum(t > second_ns - 5 * NS_PER_S and host in ends for t, *ends in w.sent if t <= second_ns)
            assert packets / 5 <= BUDGET_PPS * 1.1
