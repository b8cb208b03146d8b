"""Unmodified iperf3 flows collide on one spine: goodput before and after the loop has moved them, no restart.

Four flows between four pairs of hosts, TCP and (in every other trial) UDP at `UDP_SHARE` of a link's rate, all put on
one leaf-spine link by their source ports. Their ports are rewritten on the hosts at both ends; what each flow gets is
read from the receiving NIC's own counter, "before" with the loop in mode observe.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from sdfstream.actuate.config import ActuateConfig
from sdfstream.lab.iperf_io import FIRST_SERVER_PORT, IperfFlow, IperfJob
from tests.bench.harness import Result
from tests.trials.collision import DWELL_S, MEASURE_S, SLOW_MESH, _moves, _settle, refused, why
from tests.trials.world import SPEC, World, world

FLOWS: Final = 4
FABRIC: Final = replace(SPEC, hosts=2 * FLOWS, rate_bps=20_000_000, queue_bytes=100_000, ce_threshold_bytes=0)
GOAL: Final = 3.0
ALTERNATES: Final = 12
UDP_SHARE: Final = 0.85
"""Payload. With headers and probes a queue stands on the senders' own cables from 0.93 on: then no clock there is known
to better than half that queue, and nothing is moved, rightly (`wide-clock`)."""


async def measure(result: Result, trials: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratios: list[float] = []
    sums: list[float] = []
    config = ActuateConfig(mode="enforce", dwell_s=DWELL_S, job_share=1.0)
    record = Path(result.record) if result.record else None
    async with world(FABRIC, SLOW_MESH, config, record=record) as here:
        for number in range(trials):
            since_ns = time.time_ns()
            before, after, moves, alive = await _once(here, rng, number, udp=bool(number % 2))
            ratios.append(min(after) / max(min(before), 0.01))
            sums.append(sum(after) / sum(before))
            kind, told = "UDP" if number % 2 else "TCP", refused(here, since_ns)
            result.progress(
                f"{kind}: slowest {min(before):.2f} → {min(after):.2f} Mbit/s, "
                f"sum {sum(before):.1f} → {sum(after):.1f}, {moves} moves, all flows alive: {alive}{told}"
            )
            if ratios[-1] < GOAL:
                for line in why(here, since_ns):
                    result.progress(line)
    median, worst, reached = float(np.median(ratios)), min(ratios), sum(ratio >= GOAL for ratio in ratios)
    result.say(
        f"slowest flow after / before: median × {median:.2f}, worst × {worst:.2f}; sum median × {np.median(sums):.2f} "
        f"in {len(ratios)} trials (goal ≥ {GOAL:g}, reached in {reached}: "
        f"{'met' if 10 * reached >= 9 * len(ratios) else 'NOT met'})",
        ratio_median=round(median, 3),
        ratio_worst=round(worst, 3),
        sum_ratio_median=round(float(np.median(sums)), 3),
        ratios=[round(r, 3) for r in ratios],
        seed=seed,
    )


async def _once(
    here: World, rng: np.random.Generator, number: int, *, udp: bool
) -> tuple[list[float], list[float], int, bool]:
    spine = f"s{rng.integers(FABRIC.spines)}"
    flows = []
    for i in range(FLOWS):
        src, dst = f"h{i:02d}/r0", f"h{i + FLOWS:02d}/r0"
        first = 50_000 + 64 * i + 512 * (number % 16)
        port = here.fabric.ports_via(
            f"l0->{spine}", src, dst, 1, FIRST_SERVER_PORT + i, first, "udp" if udp else "tcp"
        )[0]
        others = tuple(p for p in range(first, first + ALTERNATES + 1) if p != port)[:ALTERNATES]
        flows.append(IperfFlow(src, dst, port, int(UDP_SHARE * FABRIC.rate_bps) if udp else None, others))
    since_ns = time.time_ns()
    await here.change_mode("observe")
    with IperfJob(here.fabric, f"iperf{number}", flows, here.jobs_dir, 120.0) as job:
        before = await _goodput(job)
        await here.change_mode("enforce")
        await _settle(here, since_ns)
        after = await _goodput(job)
        alive = job.running
    return before, after, _moves(here, since_ns), alive


async def _goodput(job: IperfJob) -> list[float]:
    await asyncio.sleep(1.0)
    first, began_s = job.received_bytes(), time.monotonic()
    await asyncio.sleep(MEASURE_S)
    last, took_s = job.received_bytes(), time.monotonic() - began_s
    return [(b - a) * 8 / took_s / 1e6 for a, b in zip(first, last, strict=True)]
