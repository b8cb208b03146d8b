"""The demo's play: a lab, its pipeline, and faults one after the other, each held long enough to be found."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream.actuate.config import ActuateConfig
from sdfstream.board.why import explain
from sdfstream.demo.jobs_io import DemoJobs, deeds
from sdfstream.demo.lab_source_io import lab_source
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.errors import UnavailableError
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.spec import FabricSpec
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, OUTCOME
from sdfstream.runtime.live_io import Watcher
from sdfstream.score.match import match
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings

if TYPE_CHECKING:
    from sdfstream.lab.faults import Fault
    from sdfstream.lab.features import Features

READY_S: Final = 45.0
"""How long the mesh may take until every NIC is judged and every clock is synced."""
ARMED_S: Final = 20.0
"""How long the loop may take to know the ways of all queue pairs."""
HOLD_DOWN_MS: Final = 3_000
"""How long a former path must be clean before a queue pair goes back to it; shorter than the default, to show it."""
WHY_S: Final = 5.0
"""When, after a fault, `why` is asked."""
QUIET_S: Final = 12.0
"""Longest wait for findings to resolve after a fault was healed."""


@dataclass(frozen=True, slots=True)
class Act:
    """One fault of the play."""

    title: str
    """May name the target: ``{target}``."""
    inject: Callable[[Fabric, str], Fault]
    """Breaks the target."""
    target: Callable[[DemoJobs], str]
    """Chosen when its turn comes, since jobs move."""
    hold_s: float
    """Held this long, found or not; a flap ends by itself."""
    drops: bool = False
    """Needs something that drops packets at will: eBPF or nf_tables."""


@dataclass(frozen=True, slots=True)
class Play:
    """A fabric, its probe mesh, and the faults in order."""

    spec: FabricSpec
    mesh: MeshSpec
    acts: tuple[Act, ...]
    jobs: tuple[JobSpec, ...] = ()


def _acts(flapping: str, first: str, second: str) -> tuple[Act, ...]:
    """The four faults; `first` and `second` are the jobs whose links they hit."""
    return (
        Act(
            f"link down: the cable of {{target}}, which carries {first}, is pulled",
            lambda fabric, target: fabric.inject(_cable(target), "link-down"),
            lambda jobs: jobs.busiest(first, towards_leaf=True),
            9.0,
        ),
        Act(
            "flap: {target} goes down and up nine times",
            lambda fabric, target: fabric.flap(target, times=9, period_s=1.4, down_s=0.8),
            lambda jobs: flapping,
            15.0,
        ),
        Act(
            f"congested spine: cross traffic at 1.3 × the rate of {{target}}, which carries {second}",
            lambda fabric, target: fabric.congest(target, 1.3),
            lambda jobs: jobs.busiest(second, towards_leaf=False),
            16.0,
        ),
        Act(
            f"gray loss: {{target}}, which carries {first}, loses 10 % without a word",
            lambda fabric, target: fabric.inject(target, "gray-loss", share=0.1),
            lambda jobs: jobs.busiest(first, towards_leaf=False),
            18.0,
            drops=True,
        ),
    )


def _cable(direction: str) -> str:
    """The link of a leaf-spine direction: ``s1->l0`` to ``l0--s1``."""
    return "--".join(sorted(direction.split("->")))


def _jobs(rate_bps: int, first: tuple[str, ...], second: tuple[str, ...]) -> tuple[JobSpec, ...]:
    """Two jobs on one rail; together they leave a third of the fabric free."""
    return (
        JobSpec("train-a", first, qps=2, chunk_kb=16, message_mb=0.5, rate_bps=rate_bps),
        JobSpec("train-b", second, collective="all-to-all", qps=2, chunk_kb=16, message_mb=0.5, rate_bps=rate_bps),
    )


LARGE: Final = Play(
    FabricSpec(rate_bps=10_000_000, queue_bytes=50_000, ce_threshold_bytes=20_000),
    MeshSpec(
        peers_per_nic=2, ports_per_peer=6, rate_hz=10.0, liveness_ms=500, watch_ports=12, watch_rate_hz=50.0,
        watch_liveness_ms=80,
    ),
    _acts("h03/r1", "train-a", "train-b"),
    _jobs(2_000_000, ("h00", "h04", "h01", "h05"), ("h02", "h06")),
)  # fmt: skip
SMALL: Final = Play(
    FabricSpec(hosts=4, rate_bps=10_000_000, queue_bytes=50_000, ce_threshold_bytes=20_000),
    MeshSpec(
        peers_per_nic=3, ports_per_peer=6, rate_hz=8.0, liveness_ms=500, watch_ports=12, watch_rate_hz=25.0,
        watch_liveness_ms=160,
    ),
    _acts("h02/r1", "train-a", "train-b"),
    _jobs(2_000_000, ("h00", "h02"), ("h01", "h03")),
)  # fmt: skip


async def play(data: Path, piece: Play, *, record: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the whole piece; returns what was injected, found and done, as plain JSON."""
    started_s = time.monotonic()
    truth = data / "truth"
    settings = Settings(data=data, actuate=ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS))
    with Fabric.up(piece.spec, truth_dir=truth) as fabric:
        built_s = time.monotonic() - started_s
        say(f"lab: {_size(fabric)}, up in {built_s * 1e3:.0f} ms")
        acts, left_out = possible(piece.acts, fabric.features)
        for sentence in left_out:
            say(f"lab: {sentence}")
        said = _Said()
        recording = data / "recording" if record else None
        async with service(settings, record=recording, watchers=[said.watcher]) as running:
            async with lab_source(fabric, running, piece.mesh) as agent:
                paths = sum(len(s.source_ports) for h in fabric.agent_config(piece.mesh).hosts for s in h.sessions)
                say(f"agent: {paths} paths at {piece.mesh.rate_hz:g}/s; watch: sdfstream top --data {data}")
                ready_s = await _ready(running, fabric, agent, say)
                played, ended = await _with_jobs(piece, acts, Stage(fabric, running, said, say))
                clocks = _clocks(running)
                rates = running.board.view(time.time_ns())["pipeline"]
            counters = running.counters()
    faults = [json.loads(line) for line in (truth / "faults.jsonl").read_text().splitlines()]
    result = match(faults, said.of(FINDING.name))
    return {
        "mode": "lab",
        "loop": settings.actuate.mode,
        "ready_s": round(ready_s, 1),
        "seconds": round(time.monotonic() - started_s, 1),
        "faults": faults,
        "left_out": left_out,
        "findings": said.of(FINDING.name),
        "outcome": result.as_dict(),
        "acts": played,
        "jobs": ended,
        "clocks": clocks,
        "pipeline": rates,
        "counters": counters,
        "load": list(os.getloadavg()),
    }


@dataclass(frozen=True, slots=True)
class Stage:
    """What an act is played on."""

    fabric: Fabric
    running: Service
    said: _Said
    say: Callable[[str], None]


async def _with_jobs(
    piece: Play, acts: Sequence[Act], stage: Stage
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Start the jobs, play, stop them; what each act did, and the jobs' last figures."""
    jobs = await DemoJobs.start(stage.fabric, stage.running, piece.jobs)
    sampling = asyncio.create_task(jobs.sample())
    try:
        await _armed(stage, jobs)
        played = [await _perform(f"{n}/{len(acts)}", act, stage, jobs) for n, act in enumerate(acts, 1)]
    finally:
        sampling.cancel()
        ended = await jobs.stop()
    for one in ended:
        stage.say(
            f"{one['job']}: {one['collectives']} collectives, {one['checked_wrong']} with a wrong sum, "
            f"{one['doubled_chunks']} chunks came twice and counted once"
        )
    return played, ended


async def _armed(stage: Stage, jobs: DemoJobs) -> None:
    """Wait until the queue pairs are armed against the death of their paths, as many as can be."""
    began_s = time.monotonic()
    wanted = sum(len(job.queue_pairs(host)) for job in jobs.jobs for host in job.controls)
    armed = 0
    while time.monotonic() - began_s < ARMED_S and armed < wanted:
        await asyncio.sleep(0.2)
        ids = {o["command"] for o in stage.said.of(OUTCOME.name) if o["state"] == "accepted"}
        armed = len({c["target"]["id"] for c in stage.said.of(COMMAND.name) if c["id"] in ids})
    names = ", ".join(f"{job.name} ({len(job.controls)} ranks)" for job in jobs.jobs)
    stage.say(
        f"jobs: {names}; {armed} of {wanted} queue pairs armed after {time.monotonic() - began_s:.1f} s; "
        "the loop is in mode enforce"
    )


def possible(acts: Sequence[Act], features: Features) -> tuple[tuple[Act, ...], list[str]]:
    """The acts that this machine allows, and in sentences what is missing or done in another way."""
    said = [f"without {one}" for one in features.missing]
    if features.drops is not None:
        return tuple(acts), said
    left_out = [act.title.partition(":")[0] for act in acts if act.drops]
    said += [f"left out, since nothing here can drop packets: {title}" for title in left_out]
    return tuple(act for act in acts if not act.drops), said


class _Said:
    """Every finding, command and outcome, in order: the score judges what was said when."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self.watcher = Watcher("score", (FINDING.name, COMMAND.name, OUTCOME.name), self._take)

    def of(self, topic: str, start: int = 0) -> list[dict[str, Any]]:
        """What was said on a topic, from the `start`-th of all statements."""
        return [data for name, data in self.all[start:] if name == topic]

    async def _take(self, messages: Sequence[Message]) -> None:
        self.all += [(m.topic, dict(m.body.data)) for m in messages if isinstance(m.body, Event)]


async def _ready(
    running: Service, fabric: Fabric, agent: asyncio.subprocess.Process, say: Callable[[str], None]
) -> float:
    """Wait until every NIC is judged healthy both ways and every clock is synced."""
    began_s = time.monotonic()
    wanted_nics = fabric.spec.hosts * fabric.spec.rails
    while (waited_s := time.monotonic() - began_s) < READY_S:
        if agent.returncode is not None:
            raise UnavailableError(f"the agent ended with {agent.returncode}; see {running.link.parent / 'agent.log'}")
        view = running.board.view(time.time_ns())
        healthy, synced = view["nics"]["healthy"], view["clocks"]["by_status"].get("synced", 0)
        if healthy == wanted_nics and synced == fabric.spec.hosts:
            err_ns = view["clocks"]["worst_err_ns"]
            say(f"ready after {waited_s:.1f} s: {healthy} NICs healthy, {synced} clocks synced within {err_ns:.0f} ns")
            return waited_s
        await asyncio.sleep(0.1)
    raise UnavailableError(f"not ready after {READY_S:.0f} s: {healthy} NICs healthy, {synced} clocks synced")


async def _perform(number: str, act: Act, stage: Stage, jobs: DemoJobs) -> dict[str, Any]:
    """Play one act; what it meant for the jobs and what the loop did."""
    target = act.target(jobs)
    stage.say(f"{number} {act.title.format(target=target)}")
    start, before_s = len(stage.said.all), time.monotonic()
    fault = act.inject(stage.fabric, target)
    told: set[str] = set()
    end_s = before_s + act.hold_s
    why = ""
    while time.monotonic() < end_s:
        _tell(stage.running, fault.at_ns, told, stage.say)
        await asyncio.sleep(0.1)
        if not why and time.monotonic() > before_s + WHY_S:
            why = _hurt(stage, jobs)
    _tell(stage.running, fault.at_ns, told, stage.say)
    if fault.healed_at_ns is None:
        stage.fabric.heal(fault.id)
    healed_s = time.monotonic()
    result = {
        "act": act.title.partition(":")[0],
        "target": target,
        "before_mbps": _rounded(jobs.rates_mbps(before_s - 3.0, before_s)),
        "worst_mbps": _rounded(jobs.worst_mbps(before_s, healed_s)),
        "loop_mbps": _rounded(jobs.rates_mbps(healed_s - 3.0, healed_s)),
        "loop": deeds(stage.said.of(COMMAND.name), stage.said.of(OUTCOME.name, start), fault.at_ns),
        "why": why,
    }
    if why:
        stage.say(f"      why: {why}")
    stage.say(f"{number} healed")
    quiet_s = healed_s + QUIET_S
    while time.monotonic() < quiet_s and stage.running.board.findings(open_only=True):
        _tell(stage.running, fault.at_ns, told, stage.say)
        await asyncio.sleep(0.1)
    await asyncio.sleep(max(0.0, healed_s + HOLD_DOWN_MS / 1e3 + 2.0 - time.monotonic()))
    result["after_mbps"] = _rounded(jobs.rates_mbps(time.monotonic() - 2.5, time.monotonic()))
    return result


def _hurt(stage: Stage, jobs: DemoJobs) -> str:
    """What `sdfstream why` says now of the first job that the network holds up or held up; empty: of none."""
    now_ns = time.time_ns()
    verdicts = [explain(stage.running.jobs.facts(job.name, now_ns)) for job in jobs.jobs]
    return next((v.paragraph for v in verdicts if v.findings), "")


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: round(rate, 2) for name, rate in rates.items()}


def _tell(running: Service, since_ns: int, told: set[str], say: Callable[[str], None]) -> None:
    """Say each finding once, when it is first seen."""
    for finding in running.board.findings(open_only=True):
        if finding["id"] not in told and finding["seen_at_ns"] >= since_ns:
            told.add(finding["id"])
            after_s = (finding["seen_at_ns"] - since_ns) / 1e9
            subject = finding["subject"]
            say(f"      +{after_s:5.2f} s  {finding['severity']}: {finding['kind']} {subject['type']} {subject['id']}")


def _clocks(running: Service) -> dict[str, Any]:
    view: dict[str, Any] = running.board.view(time.time_ns())["clocks"]
    return {k: view[k] for k in ("known", "by_status", "worst_err_ns")}


def _size(fabric: Fabric) -> str:
    spec = fabric.spec
    sizes = f"{spec.hosts} hosts × {spec.rails} rails, {spec.leaves} leaves, {spec.spines} spines"
    return f"{sizes} at {spec.rate_bps / 1e6:g} Mbit/s"
