"""A real agent process beside an emulated job on a lab, commanded over the link by a small controller of the test's
own: links break, the agent is killed, the controller falls silent, a thousand bad commands come."""

from __future__ import annotations

import asyncio
import base64
import collections
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from sdfstream import settings
from sdfstream.bus.link.server_io import LinkServer
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.lab import Fabric
from sdfstream.lab.job_io import Job
from sdfstream.lab.mesh import MeshSpec
from sdfstream.probes.config import AgentConfig
from sdfstream.records.command import Command
from sdfstream.records.fabric import QueuePair
from sdfstream.records.job import job_shard
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import COMMAND, JOB, LIVENESS, OUTCOME
from tests.fixtures.control import SIGNER, STRANGER
from tests.fixtures.lab import SMALL, fabric, up_or_skip

__all__ = ["fabric"]
pytestmark = pytest.mark.lab
MESH = MeshSpec(peers_per_nic=1, ports_per_peer=2, rate_hz=10.0, trace_interval_s=0.0)
HOSTS = ("h00", "h02")
LEASE_NS = 4_000_000_000
HOLD_DOWN_MS = 400


@dataclass
class World:
    """What runs, and what was said."""

    fabric: Fabric
    config: AgentConfig
    folder: Path
    bus: MemoryBus
    job: Job
    agent: subprocess.Popen[bytes] | None = None
    heard: list[tuple[float, str, dict[str, Any]]] = field(default_factory=list)
    """(seconds, topic, data)."""

    def start_agent(self) -> None:
        file = self.folder / "agent.yaml"
        file.write_text(settings.dump(self.config))
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
        with (self.folder / "agent.log").open("ab") as out:
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def kill_agent(self, how: int = signal.SIGKILL) -> None:
        if self.agent is not None:
            self.agent.send_signal(how)
            self.agent.wait(10)
            self.agent = None

    async def listen(self) -> None:
        reader = await self.bus.subscribe("test", [OUTCOME.name, JOB.name, LIVENESS.name])
        while True:
            for message in await reader.read(timeout_s=0.5):
                assert isinstance(message.body, Event)
                self.heard.append((time.monotonic(), message.topic, dict(message.body.data)))

    async def until(self, true: Callable[[], Any], seconds: float = 20) -> Any:
        end = time.monotonic() + seconds
        while not (found := true()):
            if time.monotonic() > end:
                log = (self.folder / "agent.log").read_text()[-3000:]
                raise AssertionError(f"not within {seconds} s; outcomes {self.outcomes()}; agent: {log}")
            await asyncio.sleep(0.01)
        return found

    def outcomes(self, command: str | None = None) -> list[str]:
        told = [d for _, topic, d in self.heard if topic == OUTCOME.name]
        return [d["state"] for d in told if command in (None, d["command"])]

    def pairs(self) -> dict[str, QueuePair]:
        """Queue pairs as the agent tells them."""
        found = {}
        for _, topic, data in self.heard:
            if topic == JOB.name:
                found |= {q.qp: q for q in job_shard(data).qps}
        return found

    def true_path(self, qp: str) -> int:
        """As its process tells it."""
        host = qp.partition("/")[0]
        return next(int(q["path"]) for q in self.job.queue_pairs(host) if q["qp"] == qp)

    def watched(self, pair: QueuePair) -> bool:
        """All watch sessions of its NIC pair are alive."""
        alive = set()
        for _, topic, data in self.heard:
            if topic == LIVENESS.name:
                for c in data["changes"]:
                    if (c["role"], c["src"], c["dst"], c["dscp"]) == ("sender", pair.src, pair.dst, pair.dscp):
                        (alive.add if c["state"] == "alive" else alive.discard)(c["path"])
        return alive >= set(self.ports())

    def ports(self) -> range:
        return range(self.config.watch_first_port, self.config.watch_first_port + self.config.watch_ports)

    # --- the controller ------------------------------------------------------------------------------------------

    def ways(self, pair: QueuePair, path: int) -> list[str]:
        """Link directions between routers that the queue pair crosses there and back, on this path: the oracle's."""
        there = self.fabric.path(pair.src, pair.dst, path, pair.dst_port)
        return there[1:-1] + self.fabric.path(pair.dst, pair.src, path, pair.dst_port)[1:-1]

    def watch(self, pair: QueuePair, path: int) -> list[dict[str, Any]]:
        crossed: dict[str, list[list[Any]]] = {}
        for port in self.ports():
            probe = [*self.fabric.path(pair.src, pair.dst, port), *self.fabric.path(pair.dst, pair.src, 862, port)]
            for segment in probe:
                crossed.setdefault(segment, []).append([pair.dst, port, pair.dscp])
        return [{"segment": s, "paths": crossed.get(s, [])} for s in self.ways(pair, path)]

    def arming(self, pair: QueuePair, name: str = "") -> dict[str, Any]:
        here = self.true_path(pair.qp)
        others = [p for p in pair.alternates if p != here and not set(self.ways(pair, p)) & set(self.ways(pair, here))]
        wanted = {
            "watch": self.watch(pair, here),
            "alternates": [{"path": p, "watch": self.watch(pair, p)} for p in others[:4]],
            "hold_down_ms": HOLD_DOWN_MS,
            "clean_probes": 10,
        }
        return self.data(name or f"f-{pair.qp}", pair, set=wanted, expected={"path": here}, undo={"path": here})

    def data(self, name: str, pair: QueuePair, **fields: Any) -> dict[str, Any]:
        now_ns = self.bus_clock()
        lease_ns = fields.pop("lease_ns", LEASE_NS)
        target = {"type": "qp", "id": pair.qp, "host": pair.src.partition("/")[0], "job": "train"}
        base: dict[str, Any] = {
            "id": name, "epoch": 5, "issued_at_ns": now_ns, "expires_at_ns": now_ns + lease_ns, "mode": "enforce",
            "action": "failover", "target": target, "reason": (),
        }  # fmt: skip
        return Command(**base | fields).as_data()

    def renewal(self, data: dict[str, Any], lease_ns: int = LEASE_NS) -> dict[str, Any]:
        now_ns = self.bus_clock()
        return {**data, "issued_at_ns": now_ns, "expires_at_ns": now_ns + lease_ns}

    async def say(self, *orders: dict[str, Any], signed: bool = True, key: str | None = None) -> None:
        outputs = []
        for data in orders:
            body = SIGNER.sign(data) if signed else data
            event = Event(COMMAND.name, "controller", f"c{time.monotonic_ns()}", self.bus_clock(), body)
            outputs.append(Output(COMMAND.name, key or str(data["target"]["host"]), event))
        await self.bus.publish(outputs)

    @staticmethod
    def bus_clock() -> int:
        return time.time_ns()


@asynccontextmanager
async def world(fabric: Fabric, folder: Path) -> AsyncIterator[World]:
    jobs = folder / "jobs"
    spec = JobSpec("train", HOSTS, qps=4, rate_bps=1_500_000, message_mb=0.1, chunk_kb=8)
    config = replace(
        fabric.agent_config(MESH, HOSTS),
        jobs_dir=str(jobs),
        control=True,
        trusted_keys=(base64.b64encode(SIGNER.public).decode(),),
        control_state=str(folder / "state" / "journal.json"),
        hosts=tuple(replace(h, read_ports=False) for h in fabric.agent_config(MESH, HOSTS).hosts),
        realtime=False,
    )
    bus = MemoryBus(time.time_ns)
    server = LinkServer(bus, folder / "link")
    await server.start()
    job = await asyncio.to_thread(Job.start, fabric, spec, jobs, [SIGNER.public])
    made = World(fabric, config, folder, bus, job)
    listening = asyncio.create_task(made.listen())
    try:
        made.start_agent()
        pairs = await made.until(lambda: len(made.pairs()) == 8 and made.pairs(), 90)  # a busy machine starts slowly
        await made.until(lambda: all(made.watched(q) for q in pairs.values()), 60)
        yield made
    finally:
        fabric.heal()
        listening.cancel()
        made.kill_agent(signal.SIGTERM)
        await asyncio.to_thread(job.stop)
        await server.close()


@pytest.fixture
def wide() -> Iterator[Fabric]:
    """Four spines, so that there is somewhere to go."""
    with up_or_skip(replace(SMALL, spines=4)) as running:
        yield running


def victim(made: World) -> tuple[QueuePair, str, list[str]]:
    """A queue pair of h00, the spine link it leaves by, and those that do not cross that link."""
    pair = sorted((q for q in made.pairs().values() if q.src == "h00/r0"), key=lambda q: q.qp)[0]
    direction = made.fabric.path(pair.src, pair.dst, pair.path, pair.dst_port)[1]
    a, b = direction.split("->")
    both = {direction, f"{b}->{a}"}
    others = [q.qp for q in made.pairs().values() if not both & set(made.ways(q, q.path))]
    return pair, direction, others


async def test_a_link_dies_and_heals_and_the_agent_is_killed_in_between(wide: Fabric, tmp_path: Path) -> None:
    async with world(wide, tmp_path) as made:
        pair, direction, others = victim(made)
        before = {qp: made.true_path(qp) for qp in made.pairs()}
        arms = {q.qp: made.arming(q) for q in made.pairs().values()}
        await made.say(*arms.values())
        await made.until(lambda: made.outcomes().count("accepted") == len(arms))
        fault = wide.inject(direction, "black-hole")
        name = f"f-{pair.qp}"
        await made.until(lambda: "applied" in made.outcomes(name), 5)
        told = next(
            d for _, t, d in made.heard if t == OUTCOME.name and (d["command"], d["state"]) == (name, "applied")
        )
        took_ms = (told["applied_at_ns"] - fault.at_ns) / 1e6
        listed = next(q for q in made.job.queue_pairs("h00") if q["qp"] == pair.qp)
        first_ms = (listed["moved_at_ns"] - fault.at_ns) / 1e6 if listed.get("moved_at_ns") else None
        print(f"\nblack hole to outcome {took_ms:.1f} ms, to first packet on the new path {first_ms} ms")
        assert took_ms < 3_000
        assert direction not in made.ways(pair, made.true_path(pair.qp))
        for qp in others:
            assert made.true_path(qp) == before[qp], f"{qp} was moved without need"

        # killed and started again: what is moved stays moved, what was heard is not heard again
        made.kill_agent()
        mark = len(made.heard)
        made.start_agent()
        await made.until(lambda: any(t == JOB.name for _, t, _ in made.heard[mark:]), 90)
        await made.say(arms[pair.qp])
        await made.until(lambda: "refused" in made.outcomes(name))
        assert made.true_path(pair.qp) != before[pair.qp]

        # the controller is silent: the lease lapses, the former path is dead, so it is held
        await made.until(lambda: "held" in made.outcomes(name), 10)
        assert made.true_path(pair.qp) != before[pair.qp]
        wide.heal()
        await made.until(lambda: made.outcomes(name)[-1] == "undone", 10)
        assert made.true_path(pair.qp) == before[pair.qp]
        assert all(made.true_path(qp) == before[qp] for qp in others)


async def test_a_limit_ends_with_its_lease_whoever_is_dead(wide: Fabric, tmp_path: Path) -> None:
    async with world(wide, tmp_path) as made:
        pair, *_ = victim(made)

        def rate() -> int | None:
            return next(q["rate_bps"] for q in made.job.queue_pairs("h00") if q["qp"] == pair.qp)

        own, lease_ns = rate(), 3_000_000_000
        wanted = {"set": {"rate_bps": 400_000}, "undo": {"rate_bps": None}, "expected": {"path": pair.path}}
        order = made.data("t", pair, action="throttle", lease_ns=lease_ns, **wanted)
        await made.say(order)
        await made.until(lambda: made.outcomes("t") == ["accepted", "applied"])
        assert rate() == 400_000
        await asyncio.sleep(1.5)
        await made.say(made.renewal(order, lease_ns))
        await asyncio.sleep(2)  # by then the first lease is over
        assert rate() == 400_000, "a renewed limit holds"
        await made.until(lambda: made.outcomes("t")[-1] == "undone", 5)  # the controller is silent
        assert rate() == own
        await made.say(made.renewal(order, lease_ns))
        await made.until(lambda: rate() == 400_000)
        made.kill_agent()
        await made.until(lambda: rate() == own, 6)  # by the process's own time limit


async def test_of_a_thousand_bad_commands_none_is_obeyed(wide: Fabric, tmp_path: Path) -> None:
    async with world(wide, tmp_path) as made:
        pairs = sorted(made.pairs().values(), key=lambda q: q.qp)
        before = {q.qp: made.true_path(q.qp) for q in pairs}
        good = made.data("good", pairs[0], action="throttle", set={"rate_bps": 1_400_000}, undo={"rate_bps": None},
                         expected={"path": pairs[0].path}, lease_ns=120 * 10**9)  # fmt: skip
        await made.say(good)
        await made.until(lambda: "applied" in made.outcomes("good"))
        for i in range(1_000):
            pair = pairs[i % len(pairs)]
            here = before[pair.qp]
            to = pair.alternates[i % len(pair.alternates)]
            data = made.data(f"bad{i}", pair, action="steer", expected={"path": here}, undo={"path": here},
                             set={"path": to, "watch": made_watch, "former_watch": made_watch},
                             lease_ns=60 * 10**9)  # fmt: skip
            kind = i % 8
            if kind == 0:  # changed after signing
                await made.say({**SIGNER.sign(data), "issued_at_ns": data["issued_at_ns"] + 1}, signed=False)
            elif kind == 1:
                await made.say(STRANGER.sign(data), signed=False)
            elif kind == 2:  # its lease was over a second ago
                await made.say({**data, "issued_at_ns": data["issued_at_ns"] - 4 * 10**9,
                                "expires_at_ns": data["issued_at_ns"] - 10**9})  # fmt: skip
            elif kind == 3:
                await made.say({**data, "epoch": 4})
            elif kind == 4:  # said before, word by word
                await made.say(SIGNER.sign(good), signed=False)
            elif kind == 5:
                await made.say({**data, "mode": "dry-run"})
            elif kind == 6:
                await made.say({**data, "target": {**data["target"], "host": "h09"}}, key="h00")
            else:
                await made.say({**data, "target": {**data["target"], "id": "h00/r0#999"}})
        await made.until(lambda: made.outcomes().count("refused") == 1_000, 60)
        reasons = collections.Counter(
            d["why"].partition(":")[0] for _, t, d in made.heard if t == OUTCOME.name and d["state"] == "refused"
        )
        print(f"refused: {dict(sorted(reasons.items()))}")
        whys = "forged unknown-key expired wrong-epoch replayed not-enforced wrong-host unknown-target"
        assert sorted(reasons) == sorted(whys.split())
        assert made.outcomes().count("applied") == 1
        assert {q.qp: made.true_path(q.qp) for q in pairs} == before


made_watch = [{"segment": "any", "paths": [["h02/r0", 49_600, 26]]}]
