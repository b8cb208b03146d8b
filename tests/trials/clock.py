"""One timeline over clocks that are wrong on purpose, while one direction of the fabric stands under a 40 ms queue.

Four hosts on two leaves with a single spine between them. Each host's agent reads a virtual clock of its own, off by up
to ±247 µs, ±10 ppm, walking by 200 ns/√s. After a quiet start, cross traffic at 1.3 × the rate fills ``l0->s0`` for
a minute: every packet from the first leaf to the second waits 40 ms, none comes back late. Every NIC probes every other
over two paths at 64/s. An estimator that halves
round trips is off by 20 ms then. Judged are the rows that the bus carries and, through the reader that applications
use, the pages that the agent writes; both against the virtual clocks themselves.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from sdfstream.actuate.config import ActuateConfig
from sdfstream.clock import ClockError, ClockReader
from sdfstream.demo.lab_source_io import lab_source
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.lab.wrong_clocks import wrong_clocks
from sdfstream.probes.config import VirtualClock
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK
from sdfstream.records.units import Float64s, Int64s
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve.data_folder import CLOCK_PAGES
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.bench.harness import Result, SkippedError

SPEC: Final = FabricSpec(hosts=4, rails=1, leaves=2, spines=1, rate_bps=10_000_000, queue_bytes=50_000,
                         ce_threshold_bytes=0)  # fmt: skip
QUEUED: Final = "l0->s0"
RATE_HZ: Final = 64.0
QUIET_S, QUEUE_S, AFTER_S = 20.0, 60.0, 10.0
SETTLED_S: Final = 15.0
"""What is said before is not judged: cold start."""
SAMPLE_S: Final = 0.05
LEAST_ANSWERED: Final = 0.95
"""An estimator that says nothing is never wrong: of rows and calls so many must make a claim."""
GOAL_MEDIAN_NS, GOAL_WORST_NS = 500.0, 5_000.0


@dataclass
class Judged:
    """Errors of some answers."""

    error_ns: list[float] = field(default_factory=list)
    bound_ns: list[float] = field(default_factory=list)
    silent: int = 0
    """Rows without a claim (unsynced, faulty); refusals of the reader."""

    def add(self, error_ns: Sequence[float] | Float64s, bound_ns: Sequence[float] | Float64s) -> None:
        self.error_ns += np.asarray(error_ns).tolist()
        self.bound_ns += np.asarray(bound_ns).tolist()

    def facts(self) -> dict[str, Any]:
        size, bound = np.abs(self.error_ns), np.array(self.bound_ns)
        if not size.size:
            return {"n": 0, "silent": self.silent}
        return {
            "n": int(size.size),
            "silent": self.silent,
            "inside": float((size <= bound).mean()),
            "median_ns": float(np.median(size)),
            "p99_ns": float(np.percentile(size, 99)),
            "worst_ns": float(size.max()),
            "bound_median_ns": float(np.median(bound)),
        }


@dataclass
class Found:
    """What a run showed."""

    answers: dict[str, Judged] = field(default_factory=lambda: {"rows": Judged(), "pages": Judged()})
    queue_ms: float = 0.0
    """Median while the queue stood."""


@dataclass
class Truth:
    """The virtual clocks."""

    settings: dict[str, VirtualClock]

    def __post_init__(self) -> None:
        self.clocks = {name: Clock(s) for name, s in self.settings.items()}

    def system_ns(self, clock: str, reading_ns: Int64s) -> Int64s:
        """When the kernel's clock stood where `clock` read so; four steps are exact for skews of 10 ppm."""
        at_ns = reading_ns
        for _ in range(4):
            at_ns = at_ns + reading_ns - self.clocks[clock].reading(at_ns)
        return at_ns

    def offset_ns(self, clock: str, reference: str, reading_ns: Int64s) -> Int64s:
        """`clock` − `reference` when `clock` read so."""
        return reading_ns - self.clocks[reference].reading(self.system_ns(clock, reading_ns))


@dataclass
class Told:
    """Causal rows as the bus carried them."""

    batches: list[tuple[int, pa.RecordBatch]] = field(default_factory=list)

    async def take(self, messages: Sequence[Message]) -> None:
        self.batches += [(m.bus_at_ns, m.body) for m in messages if isinstance(m.body, pa.RecordBatch)]


async def measure(result: Result, trials: int, seed: int) -> None:
    for number in range(seed, seed + max(1, trials // 10)):
        found = await run(number, QUIET_S, QUEUE_S, AFTER_S, SETTLED_S)
        result.say(f"seed {number}: queue {found.queue_ms:.0f} ms for {QUEUE_S:.0f} s", queue_ms=found.queue_ms)
        for what, judged in found.answers.items():
            facts = judged.facts()
            met = (
                facts["n"] >= LEAST_ANSWERED * (facts["n"] + facts["silent"])
                and facts["n"] > 0
                and facts["inside"] == 1.0
                and facts["median_ns"] <= GOAL_MEDIAN_NS
                and facts["worst_ns"] <= GOAL_WORST_NS
            )
            line = f"seed {number}, {what}: {_told(facts)}: {'met' if met else 'NOT met'}"
            result.say(line, **{f"{what} {number}": facts})
            result.progress(line)  # type: ignore[attr-defined]


def _told(facts: dict[str, Any]) -> str:
    if not facts["n"]:
        return f"no answer, {facts['silent']} without a claim"
    return (
        f"{facts['inside']:.2%} of {facts['n']} inside, |error| median {facts['median_ns']:.0f}, p99 "
        f"{facts['p99_ns']:.0f}, worst {facts['worst_ns']:.0f} ns, bound {facts['bound_median_ns']:.0f} ns, "
        f"{facts['silent']} without a claim"
    )


async def run(
    seed: int, quiet_s: float, queue_s: float, after_s: float, settled_s: float, spec: FabricSpec = SPEC
) -> Found:
    """One run over a lab of its own."""
    told, found = Told(), Found()
    async with AsyncExitStack() as stack:
        try:
            fabric = stack.enter_context(Fabric.up(spec))
        except LabUnavailableError as error:
            raise SkippedError(f"no lab on this machine: {error}") from error
        data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="sdf-clock-")))
        truth = Truth(wrong_clocks(spec.host_names, seed, time.time_ns()))
        mesh = MeshSpec(ports_per_peer=2, rate_hz=RATE_HZ, trace_interval_s=0.0, virtual_clocks=truth.settings)
        settings = Settings(data=data, actuate=ActuateConfig(mode="off"))
        watcher = Watcher("trial", (CLOCK.name,), told.take)
        running = await stack.enter_async_context(service(settings, watchers=[watcher]))
        await stack.enter_async_context(lab_source(fabric, running, mesh))
        await asyncio.sleep(settled_s)
        begun = [time.time_ns()]
        sampling = asyncio.create_task(_sample(found.answers["pages"], truth, data / CLOCK_PAGES, spec.host_names))
        await asyncio.sleep(quiet_s - settled_s)
        begun.append(time.time_ns())
        fault, backlog = fabric.congest(QUEUED), []
        for _ in range(int(queue_s / 0.5)):
            await asyncio.sleep(0.5)
            backlog.append(fabric.backlog_bytes(QUEUED))
        fabric.heal(fault.id)
        begun.append(time.time_ns())
        await asyncio.sleep(after_s)
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)
    found.queue_ms = float(np.median(backlog)) * 8e3 / spec.rate_bps
    found.answers["rows"] = judged(told, truth, begun[0])
    found.answers["rows before"] = judged(told, truth, *begun[:2])
    found.answers["rows under the queue"] = judged(told, truth, *begun[1:])
    return found


def judged(told: Told, truth: Truth, from_ns: int, to_ns: int = 1 << 62) -> Judged:
    """Causal rows against the truth; rows that claim nothing are counted."""
    found = Judged()
    for bus_at_ns, batch in told.batches:
        if not from_ns <= bus_at_ns < to_ns:
            continue
        rows = [row for row in batch.to_pylist() if row["kind"] == "causal"]
        still = [row for row in rows if row["offset_ns"] == 0.0 and row["skew_ppb"] == 0.0]
        if not still:
            found.silent += len(rows)
            continue
        reference = min(still, key=lambda row: (row["err_ns"], row["clock"]))["clock"]
        for row in rows:
            if row["status"] not in ("synced", "holdover"):
                found.silent += 1
            elif row["clock"] != reference:
                true_ns = truth.offset_ns(row["clock"], reference, np.array([row["at_ns"]]))
                found.add(row["offset_ns"] - true_ns, [row["err_ns"]])
    return found


async def _sample(found: Judged, truth: Truth, folder: Path, hosts: Sequence[str]) -> None:
    """Read every page again and again; truth is the reference clock at that instant."""
    readers: dict[str, ClockReader] = {}
    while True:
        for host in hosts:
            at_ns = time.time_ns()
            try:
                reader = readers.get(host) or readers.setdefault(host, ClockReader(host, folder))
                now, reference = reader.at(at_ns), reader.page.reference
            except ClockError:
                found.silent += 1
                continue
            if reference in truth.clocks and reference != host:
                found.add([now.corrected_ns - truth.clocks[reference].at(at_ns)], [now.err_ns])
        await asyncio.sleep(SAMPLE_S)
