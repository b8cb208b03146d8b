"""FluidFlows that fill the fabric: background between random NICs, jobs in steps, incasts of faults."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sdfstream.records.units import Float64s, Int64s
from sdfstream.twin.conditions import Conditions
from sdfstream.twin.fabric import TwinFabric, mixed

if TYPE_CHECKING:
    from sdfstream.twin.scenario import PlannedJob, TwinScenario


@dataclass(slots=True)
class PlacedJob:
    """A job with the NICs of its ranks and its flows' numbers."""

    spec: PlannedJob
    nics: Int64s
    flows: Int64s
    """Numbers in the list of all flows."""


class FluidFlows:
    """All flows that a scenario may ever have; `asked` says what each asks for in a cell."""

    def __init__(self, scenario: TwinScenario, fabric: TwinFabric, rng: np.random.Generator) -> None:
        self.rng, self.scenario, self.fabric = rng, scenario, fabric
        src, dst = _background(scenario, fabric, rng)
        self._background = src.size
        mean = scenario.load.utilisation * fabric.spec.gbps * 1e9 / scenario.load.flows_per_nic
        self._mean = np.full(src.size, mean) * rng.uniform(0.7, 1.3, src.size)
        self._swing = np.zeros(src.size)
        self.jobs: list[PlacedJob] = []
        srcs, dsts, free = [src], [dst], 0
        for spec in scenario.jobs:
            hosts = (free + np.arange(spec.ranks)) % len(fabric.hosts)
            free = int(hosts[-1]) + 1
            nics = hosts * fabric.spec.rails
            a, b = _pattern(spec.pattern, nics)
            first = sum(s.size for s in srcs)
            self.jobs.append(PlacedJob(spec, nics, np.arange(first, first + a.size)))
            srcs.append(a)
            dsts.append(b)
        self._incasts: dict[tuple[int, int], Int64s] = {}
        for fault in scenario.faults:
            if fault.kind in ("incast", "bursts"):
                self._room = max(getattr(self, "_room", 0), fault.senders)
        self.src, self.dst = np.concatenate(srcs), np.concatenate(dsts)

    def add_incast(self, receiver: int, senders: int) -> None:
        """Make the flows of an incast that a fault will start."""
        same = np.flatnonzero(self.fabric.rail_of == self.fabric.rail_of[receiver])
        same = same[(self.fabric.host_of[same] != self.fabric.host_of[receiver])]
        chosen = self.rng.permutation(same)[:senders]
        self._incasts[receiver, senders] = np.arange(self.src.size, self.src.size + chosen.size)
        self.src = np.concatenate([self.src, chosen])
        self.dst = np.concatenate([self.dst, np.full(chosen.size, receiver)])

    @property
    def hashes(self) -> np.ndarray:
        """The flows' hashes of their five-tuples."""
        return mixed(np.arange(self.src.size), self.src, self.dst, 4791)

    def asked(self, at_s: float, now: Conditions) -> Float64s:
        """(flows,) bit/s asked for at `at_s`."""
        asked = np.zeros(self.src.size)
        n = self._background
        self._swing = 0.9 * self._swing + 0.1 * self.rng.standard_normal(n)
        asked[:n] = self._mean * now.surge * np.clip(1 + self._swing, 0.1, 3)
        line = self.fabric.spec.gbps * 1e9
        for job in self.jobs:
            if communicates(job.spec, at_s):
                per = np.bincount(self.src[job.flows], minlength=1)
                asked[job.flows] = job.spec.share * line / np.maximum(per[self.src[job.flows]], 1)
        for key in now.incasts:
            asked[self._incasts[key]] = line
        return asked


def communicates(spec: PlannedJob, at_s: float) -> bool:
    """Whether a job's data move at `at_s`: in the later share of each of its steps."""
    if not spec.at <= at_s < spec.until:
        return False
    step_s = spec.step_ms / 1e3
    return (at_s - spec.at) % step_s >= (1 - spec.comm_share) * step_s


def _background(scenario: TwinScenario, fabric: TwinFabric, rng: np.random.Generator) -> tuple[Int64s, Int64s]:
    nics = np.arange(len(fabric.nics))
    per = scenario.load.flows_per_nic if scenario.load.utilisation > 0 else 0
    src = np.repeat(nics, per)
    shift = rng.integers(1, max(len(fabric.hosts), 2), src.size)
    host = (fabric.host_of[src] + shift) % len(fabric.hosts)
    return src, host * fabric.spec.rails + fabric.rail_of[src]


def _pattern(pattern: str, nics: Int64s) -> tuple[Int64s, Int64s]:
    """Senders and receivers of a collective."""
    n = nics.size
    if pattern == "ring":
        return nics, np.roll(nics, -1)
    if pattern == "all-to-all":
        a, b = np.meshgrid(np.arange(n), np.arange(n), indexing="ij")
        apart = (a != b).ravel()
        return nics[a.ravel()[apart]], nics[b.ravel()[apart]]
    if pattern == "incast":
        return nics[1:], np.full(n - 1, nics[0])
    child = np.arange(1, n)
    return np.concatenate([nics[child], nics[(child - 1) // 2]]), np.concatenate([nics[(child - 1) // 2], nics[child]])
