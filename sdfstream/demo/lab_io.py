"""The demo in a lab: its pipeline, and faults one after the other, each held long enough to be found."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream import strict_json
from sdfstream.actuate.config import ActuateConfig
from sdfstream.board.why import explain
from sdfstream.demo.cpu_io import CpuShares
from sdfstream.demo.jobs_io import DemoJobs, loop_actions
from sdfstream.demo.lab_source_io import lab_source
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.errors import UnavailableError
from sdfstream.lab.fabric_io import Fabric
from sdfstream.lab.mesh import MeshSpec
from sdfstream.lab.spec import FabricSpec
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import COMMAND, FINDING, OUTCOME
from sdfstream.runtime.live_io import Watcher
from sdfstream.runtime.priority_io import ask_for_more
from sdfstream.score.match import match
from sdfstream.serve.service_io import Service, service
from sdfstream.settings import Settings

if TYPE_CHECKING:
    from sdfstream.lab.faults import Fault
    from sdfstream.lab.features import Features

READY_S: Final = 45.0
"""How long the mesh may take until every NIC is healthy and every clock is synced."""
ARMED_S: Final = 20.0
"""How long the loop may take to know the routes of all queue pairs."""
HOLD_DOWN_MS: Final = 3_000
"""How long a former path must be clean before a queue pair goes back to it; shorter than the default, to show it."""
WHY_S: Final = 5.0
"""When, after a fault, `why` is asked."""
QUIET_S: Final = 12.0
"""Longest wait for findings to resolve after a fault was healed."""


@dataclass(frozen=True, slots=True)
class FaultStep:
    """One fault of the scenario."""

    title: str
    """May name the target: ``{target}``."""
    inject: Callable[[Fabric, str], Fault]
    """Injects the fault at the target."""
    target: Callable[[DemoJobs], str]
    """Chosen just before the fault, since jobs move."""
    hold_s: float
    """Held this long, found or not; a flap ends by itself."""
    drops: bool = False
    """Whether the fault needs something that drops packets at will: eBPF or nf_tables."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fabric, its probe mesh, and the faults in order."""

    spec: FabricSpec
    mesh: MeshSpec
    steps: tuple[FaultStep, ...]
    jobs: tuple[JobSpec, ...] = ()


def _steps(flapping: str, first: str, second: str) -> tuple[FaultStep, ...]:
    """The four faults; `first` and `second` are the jobs whose links they hit."""
    return (
        FaultStep(
            f"link down: the cable of {{target}}, which carries {first}, is pulled",
            lambda fabric, target: fabric.inject(_cable(target), "link-down"),
            lambda jobs: jobs.busiest(first, towards_leaf=True),
            9.0,
        ),
        FaultStep(
            "flap: {target} goes down and up nine times",
            lambda fabric, target: fabric.flap(target, times=9, period_s=1.4, down_s=0.8),
            lambda jobs: flapping,
            15.0,
        ),
        FaultStep(
            f"congested spine: cross traffic at 1.3 × the rate of {{target}}, which carries {second}",
            lambda fabric, target: fabric.congest(target, 1.3),
            lambda jobs: jobs.busiest(second, towards_leaf=False),
            16.0,
        ),
        FaultStep(
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


LARGE: Final = Scenario(
    FabricSpec(rate_bps=10_000_000, queue_bytes=50_000, ce_threshold_bytes=20_000),
    MeshSpec(
        peers_per_nic=2, cross_rail_peers=1, ports_per_peer=2, rate_hz=10.0, liveness_ms=600, watch_ports=12,
        watch_rate_hz=30.0, watch_liveness_ms=100, flush_ms=60,
    ),
    _steps("h03/r1", "train-a", "train-b"),
    _jobs(2_000_000, ("h00", "h04", "h01", "h05"), ("h02", "h06")),
)  # fmt: skip
SMALL: Final = Scenario(
    FabricSpec(hosts=4, rate_bps=10_000_000, queue_bytes=50_000, ce_threshold_bytes=20_000),
    MeshSpec(
        peers_per_nic=3, cross_rail_peers=1, ports_per_peer=4, rate_hz=10.0, liveness_ms=500, watch_ports=12,
        watch_rate_hz=25.0, watch_liveness_ms=160, flush_ms=60,
    ),
    _steps("h02/r1", "train-a", "train-b"),
    _jobs(2_000_000, ("h00", "h02"), ("h01", "h03")),
)  # fmt: skip


async def run_scenario(data: Path, scenario: Scenario, *, record: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """Run the whole scenario; faults, findings and actions of the loop as plain JSON."""
    started_s = time.monotonic()
    truth = data / "truth"
    settings = Settings(data=data, actuate=ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS))
    with Fabric.up(scenario.spec, truth_dir=truth) as fabric:
        built_s = time.monotonic() - started_s
        say(f"lab: {_size(fabric)}, up in {built_s * 1e3:.0f} ms")
        steps, left_out = possible(scenario.steps, fabric.features)
        for sentence in left_out:
            say(f"lab: {sentence}")
        recorded = _Statements()
        recording = data / "recording" if record else None
        async with service(settings, record=recording, watchers=[recorded.watcher]) as running:
            ask_for_more()
            gc.freeze()  # modules and what was started stay: the collector need not visit them
            cpu = CpuShares()
            cpu.add("pipeline", [os.getpid()])
            async with lab_source(fabric, running, scenario.mesh) as agent:
                cpu.add("agent", [agent.pid])
                paths = sum(len(s.source_ports) for h in fabric.agent_config(scenario.mesh).hosts for s in h.sessions)
                say(f"agent: {paths} paths at {scenario.mesh.rate_hz:g}/s; watch: sdfstream top --data {data}")
                ready_s = await _ready(running, fabric, agent, say)
                played, ended = await _with_jobs(scenario, steps, DemoContext(fabric, running, recorded, cpu, say))
                clocks = _clocks(running)
                rates = running.board.view(time.time_ns())["pipeline"]
            counters = running.counters()
    faults = [strict_json.loads(line) for line in (truth / "faults.jsonl").read_text().splitlines()]
    result = match(faults, recorded.of(FINDING.name))
    return {
        "mode": "lab",
        "loop": settings.actuate.mode,
        "ready_s": round(ready_s, 1),
        "seconds": round(time.monotonic() - started_s, 1),
        "faults": faults,
        "left_out": left_out,
        "findings": recorded.of(FINDING.name),
        "outcome": result.as_dict(),
        "acts": played,
        "jobs": ended,
        "clocks": clocks,
        "pipeline": rates,
        "counters": counters,
        "load": list(os.getloadavg()),
        "cpu": cpu.as_dict(),
    }


@dataclass(frozen=True, slots=True)
class DemoContext:
    """The lab, its pipeline and the messages so far, for each step of the scenario."""

    fabric: Fabric
    running: Service
    recorded: _Statements
    cpu: CpuShares
    say: Callable[[str], None]


async def _with_jobs(
    scenario: Scenario, steps: Sequence[FaultStep], context: DemoContext
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Start the jobs, run the steps, stop the jobs; the result of each step, and the jobs' last figures."""
    jobs = await DemoJobs.start(context.fabric, context.running, scenario.jobs)
    context.cpu.add("jobs", (job.pid for job in jobs.jobs))
    sampling = asyncio.create_task(jobs.sample())
    try:
        await _armed(context, jobs)
        played = [await _run_step(f"{n}/{len(steps)}", step, context, jobs) for n, step in enumerate(steps, 1)]
    finally:
        context.cpu.end()
        sampling.cancel()
        ended = await jobs.stop()
    for one in ended:
        if "returncode" in one:
            context.say(f"{one['job']}: it had ended by itself, with exit code {one['returncode']}")
            continue
        context.say(
            f"{one['job']}: {one['collectives']} collectives, {one['checked_wrong']} with a wrong sum, "
            f"{one['doubled_chunks']} chunks came twice and counted once"
        )
    return played, ended


async def _armed(context: DemoContext, jobs: DemoJobs) -> None:
    """Wait until the queue pairs are armed against the death of their paths, as many as can be."""
    began_s = time.monotonic()
    wanted = sum(len(job.queue_pairs(host)) for job in jobs.jobs for host in job.controls)
    armed = 0
    while time.monotonic() - began_s < ARMED_S and armed < wanted:
        await asyncio.sleep(0.2)
        ids = {o["command"] for o in context.recorded.of(OUTCOME.name) if o["state"] == "accepted"}
        armed = len({c["target"]["id"] for c in context.recorded.of(COMMAND.name) if c["id"] in ids})
    names = ", ".join(f"{job.name} ({len(job.controls)} ranks)" for job in jobs.jobs)
    context.say(
        f"jobs: {names}; {armed} of {wanted} queue pairs armed after {time.monotonic() - began_s:.1f} s; "
        "the loop is in mode enforce"
    )


def possible(steps: Sequence[FaultStep], features: Features) -> tuple[tuple[FaultStep, ...], list[str]]:
    """The steps that this machine allows, and in sentences what is missing or left out."""
    recorded = [f"without {one}" for one in features.missing]
    if features.drops is not None:
        return tuple(steps), recorded
    left_out = [step.title.partition(":")[0] for step in steps if step.drops]
    recorded += [f"left out, since nothing here can drop packets: {title}" for title in left_out]
    return tuple(step for step in steps if not step.drops), recorded


class _Statements:
    """Every finding, command and outcome, in bus order, for the score."""

    def __init__(self) -> None:
        self.all: list[tuple[str, dict[str, Any]]] = []
        self.watcher = Watcher("score", (FINDING.name, COMMAND.name, OUTCOME.name), self._take)

    def of(self, topic: str, start: int = 0) -> list[dict[str, Any]]:
        """Data of a topic's events, from the `start`-th of all events on."""
        return [data for name, data in self.all[start:] if name == topic]

    async def _take(self, messages: Sequence[Message]) -> None:
        self.all += [(m.topic, dict(m.body.data)) for m in messages if isinstance(m.body, Event)]


async def _ready(
    running: Service, fabric: Fabric, agent: asyncio.subprocess.Process, say: Callable[[str], None]
) -> float:
    """Wait until every NIC is healthy in both directions and every clock is synced."""
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


async def _run_step(number: str, step: FaultStep, context: DemoContext, jobs: DemoJobs) -> dict[str, Any]:
    """Run one step; the throughput of the jobs before, during and after it, and what the loop did."""
    target = step.target(jobs)
    context.say(f"{number} {step.title.format(target=target)}")
    start, before_s = len(context.recorded.all), time.monotonic()
    reported = {str(f["id"]) for f in context.recorded.of(FINDING.name)}
    fault = step.inject(context.fabric, target)
    end_s = before_s + step.hold_s
    why = ""
    while time.monotonic() < end_s:
        _report_findings(context.running, fault.at_ns, reported, context.say)
        await asyncio.sleep(0.1)
        if not why and time.monotonic() > before_s + WHY_S:
            why = _explanation_of_hurt_job(context, jobs)
    _report_findings(context.running, fault.at_ns, reported, context.say)
    if fault.healed_at_ns is None:
        context.fabric.heal(fault.id)
    healed_s = time.monotonic()
    result = {
        "act": step.title.partition(":")[0],
        "target": target,
        "before_mbps": _rounded(jobs.rates_mbps(before_s - 3.0, before_s)),
        "worst_mbps": _rounded(jobs.worst_mbps(before_s, healed_s)),
        "loop_mbps": _rounded(jobs.rates_mbps(healed_s - 3.0, healed_s)),
        "loop": loop_actions(context.recorded.of(COMMAND.name), context.recorded.of(OUTCOME.name, start), fault.at_ns),
        "why": why,
    }
    if why:
        context.say(f"      why: {why}")
    context.say(f"{number} healed")
    quiet_s = healed_s + QUIET_S
    while time.monotonic() < quiet_s and context.running.board.findings(open_only=True):
        _report_findings(context.running, fault.at_ns, reported, context.say)
        await asyncio.sleep(0.1)
    await asyncio.sleep(max(0.0, healed_s + HOLD_DOWN_MS / 1e3 + 2.0 - time.monotonic()))
    result["after_mbps"] = _rounded(jobs.rates_mbps(time.monotonic() - 2.5, time.monotonic()))
    return result


def _explanation_of_hurt_job(context: DemoContext, jobs: DemoJobs) -> str:
    """The paragraph of `sdfstream why` about the first job with a finding; empty when no job has one."""
    now_ns = time.time_ns()
    known_ns = context.running.known_at_ns(now_ns)
    verdicts = [explain(context.running.jobs.facts(job.name, now_ns, known_ns)) for job in jobs.jobs]
    return next((v.paragraph for v in verdicts if v.findings), "")


def _rounded(rates: Mapping[str, float]) -> dict[str, float]:
    return {name: round(rate, 2) for name, rate in rates.items()}


def _report_findings(running: Service, since_ns: int, reported: set[str], say: Callable[[str], None]) -> None:
    """Print each finding once, when it is first seen; what is `reported` was open before, and goes on."""
    for finding in running.board.findings(open_only=True):
        if finding["id"] not in reported and finding["seen_at_ns"] >= since_ns:
            reported.add(finding["id"])
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
