"""The demo's two training jobs: throughput before, during and after each fault, and what the loop did for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sdfstream.actuate import keys_io
from sdfstream.errors import UnavailableError
from sdfstream.records.job import queue_pair

if TYPE_CHECKING:
    from sdfstream.emulator.rank_plan import JobSpec
    from sdfstream.lab.fabric_io import Fabric
    from sdfstream.lab.job_io import Job
    from sdfstream.serve.service_io import Service

_SAMPLE_S: Final = 0.5
_MOVES: Final = ("failover", "steer", "throttle")


@dataclass
class DemoJobs:
    """Jobs that run during the scenario."""

    fabric: Fabric
    jobs: Sequence[Job]
    samples: list[tuple[float, dict[str, int]]] = field(default_factory=list)
    """(steady seconds, payload delivered so far by job), twice a second."""

    @classmethod
    async def start(cls, fabric: Fabric, running: Service, specs: Sequence[JobSpec]) -> DemoJobs:
        """Start the jobs; they obey this pipeline's controller alone."""
        from sdfstream.lab.job_io import Job

        keys = [keys_io.public_key(running.controller_key)] if running.controller_key else []
        jobs = [
            await asyncio.to_thread(Job.start, fabric, spec, running.jobs_dir, keys, running.link) for spec in specs
        ]
        return cls(fabric, jobs)

    async def sample(self) -> None:
        """Record twice a second how much payload each job has delivered, until cancelled."""
        while True:
            try:
                counts = await asyncio.to_thread(lambda: {job.name: job.stats()["payload_bytes"] for job in self.jobs})
                self.samples.append((time.monotonic(), counts))
            except UnavailableError:
                pass  # a starved machine: the next sample will do
            await asyncio.sleep(_SAMPLE_S)

    async def stop(self) -> list[dict[str, Any]]:
        """Stop the jobs; their last figures."""
        return [await asyncio.to_thread(job.stop) for job in self.jobs]

    def rates_mbps(self, start_s: float, end_s: float) -> dict[str, float]:
        """Mean payload of each job between two instants."""
        within = [s for s in self.samples if start_s <= s[0] <= end_s]
        if len(within) < 2:
            return {}
        (a_s, a), (b_s, b) = within[0], within[-1]
        return {name: (b[name] - a[name]) * 8 / 1e6 / (b_s - a_s) for name in a if name in b}

    def worst_mbps(self, start_s: float, end_s: float) -> dict[str, float]:
        """Payload of each job in its worst second between two instants."""
        within = [s for s in self.samples if start_s <= s[0] <= end_s]
        worst: dict[str, float] = {}
        for (a_s, a), (b_s, b) in zip(within, within[2:], strict=False):
            for name in a:
                rate = (b[name] - a[name]) * 8 / 1e6 / (b_s - a_s)
                worst[name] = min(rate, worst.get(name, rate))
        return worst

    def busiest(self, job: str, *, towards_leaf: bool) -> str:
        """A leaf-spine direction that the job's data cross now, by the fabric's own routes."""
        own = next(j for j in self.jobs if j.name == job)
        pairs = [queue_pair(q) for host in own.controls for q in own.queue_pairs(host)]
        flows = [pair.flow() for pair in pairs]
        used = [
            direction
            for f in flows
            for direction in self.fabric.path(f.src, f.dst, f.source_port, f.destination_port, f.protocol)[1:-1]
            if direction.startswith("s") is towards_leaf
        ]
        if not used:
            raise UnavailableError(f"no queue pair of {job} crosses a spine")
        return max(sorted(set(used)), key=used.count)


def loop_actions(
    commands: Sequence[dict[str, Any]], outcomes: Sequence[dict[str, Any]], fault_ns: int
) -> dict[str, Any]:
    """What the loop did since `fault_ns`: moves by kind, the first one's delay, gains, what was taken back.

    Parameters
    ----------
    commands, outcomes : sequence of mapping
        `data` of the commands and outcomes since then.
    """
    actions = {c["id"]: c["action"] for c in commands}
    done = [
        o
        for o in outcomes
        if o["state"] == "applied" and o["host"] != "controller" and actions.get(o["command"], o["action"]) in _MOVES
    ]
    at_ns = [o["applied_at_ns"] for o in done if o.get("applied_at_ns") and o["applied_at_ns"] >= fault_ns]
    gains = [
        o["after"]["throughput_bps"] / o["before"]["throughput_bps"]
        for o in outcomes
        if o["host"] == "controller" and o["why"].startswith("effect") and o["before"].get("throughput_bps")
    ]
    kinds: dict[str, int] = {}
    for o in done:
        kind = actions.get(o["command"], o["action"])
        kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "moves": kinds,
        "first_ms": round((min(at_ns) - fault_ns) / 1e6, 1) if at_ns else None,
        "gains": [round(g, 2) for g in gains],
        "taken_back": sum(o["state"] == "undone" for o in outcomes),
        "refused": sum(o["state"] == "refused" for o in outcomes),
    }
