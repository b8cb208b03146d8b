"""Leases lapse, controllers and agents are killed: limits end with their lease, nothing goes back to a dead path.

Four kinds of trial in turn: (1) a limit, then the agent is killed: the queue pair's own process must lift it; (2) a
limit, then the pipeline with the controller is killed: the agent must; (3) a failover, then the controller is killed
and the leases run out while the link is still dead; (4) a failover, then the agent is killed and started again. In 3
and 4 every queue pair's way is looked up in the kernels' routes all the time until the link is healed; afterwards they
must find back by themselves.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import numpy as np

from sdfstream.actuate.config import ActuateConfig
from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.lab.job_io import Job
from sdfstream.records.job import queue_pair
from tests.bench.harness import Result
from tests.trials.pieces import Pieces, pieces, throttle
from tests.trials.world import HOLD_DOWN_MS

LEASE_S: Final = 4.0
SLACK_S: Final = 1.5
"""Grace for a limit to be lifted after its lease: one look of the agent, a busy machine."""
RATE_BPS: Final = 2_000_000


async def measure(result: Result, trials: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = ActuateConfig(mode="enforce", hold_down_ms=HOLD_DOWN_MS, lease_s=LEASE_S)
    limits: list[float] = []
    overdue = returned = on_dead = moves = 0
    async with pieces(actuate=config) as here:
        spec = JobSpec("train-a", ("h00", "h02"), qps=2, chunk_kb=16, message_mb=0.25)
        job = await asyncio.to_thread(Job.start, here.fabric, spec, here.jobs_dir, [here.signer.public])
        try:
            for number in range(trials):
                victim = ("agent", "pipeline")[number % 2]
                if number % 4 < 2:
                    lifted_s = await _limit(here, job, rng, victim, number)
                    overdue += lifted_s is None
                    limits += [] if lifted_s is None else [lifted_s]
                    result.progress(f"limit, {victim} killed: lifted {lifted_s} s after its lease")
                else:
                    bad, back, moved = await _failover(here, job, victim)
                    on_dead, returned, moves = on_dead + bad, returned + back, moves + moved
                    result.progress(f"{moved} moved, {victim} killed: {bad} seen on a dead path, back: {back}")
        finally:
            stats = await asyncio.to_thread(job.stop)
    told = f"latest {max(limits):.2f} s after the lease" if limits else "none tried"
    result.say(
        f"limits not lifted: {overdue} of {len(limits) + overdue} ({told}); queue pairs seen back on a dead path: "
        f"{on_dead} of {moves} moved; all found back after the heal in {returned} trials; wrong results of the job: "
        f"{stats.get('checked_wrong')}",
        limits=len(limits) + overdue,
        limits_overdue=overdue,
        limits_latest_s=round(max(limits, default=0.0), 3),
        on_dead_path=on_dead,
        moved=moves,
        returned_trials=returned,
        checked_wrong=stats.get("checked_wrong"),
        seed=seed,
    )


async def _pairs(job: Job) -> dict[str, dict[str, Any]]:
    def ask() -> dict[str, dict[str, Any]]:
        return {q["qp"]: q for h in job.controls for q in job.queue_pairs(h)}

    return await asyncio.to_thread(ask)


async def _wait(job: Job, what: Any, timeout_s: float) -> bool:
    end_s = time.monotonic() + timeout_s
    while time.monotonic() < end_s:
        if what(await _pairs(job)):
            return True
        await asyncio.sleep(0.03)
    return False


async def _limit(here: Pieces, job: Job, rng: np.random.Generator, victim: str, number: int) -> float | None:
    """Limit one queue pair, kill `victim`; seconds from the end of the lease until the limit was gone."""
    await _settled(here, job)
    pairs = await _pairs(job)
    qp = pairs[str(rng.choice(sorted(pairs)))]
    end_s = time.monotonic() + 30.0
    while True:  # an agent that was just started first has to learn of the job
        data = throttle(qp, job, f"limit-{number}-{time.monotonic_ns()}", LEASE_S, RATE_BPS, time.time_ns())
        await here.command(data)
        if await _wait(job, lambda now: now[qp["qp"]]["rate_bps"] == RATE_BPS, 1.0):
            break
        if time.monotonic() > end_s:
            raise RuntimeError(f"the limit was not applied: {here.said[-1:]}")
    await here.kill(victim)
    lifted = await _wait(job, lambda now: now[qp["qp"]]["rate_bps"] is None, LEASE_S + SLACK_S + 1.0)
    late_s = (time.time_ns() - data["expires_at_ns"]) / 1e9
    await here.start(victim)
    return round(late_s, 3) if lifted and late_s <= SLACK_S else None


async def _failover(here: Pieces, job: Job, victim: str) -> tuple[int, bool, int]:
    """Kill `victim` after a failover, wait two leases, heal; (seen on a dead path, all back, moved)."""
    await _settled(here, job)
    before = await _pairs(job)
    direction = next(d for d in _ways(here, next(iter(before.values()))) if d.startswith("s"))
    spine, leaf = direction.split("->")
    hit = {qp for qp, pair in before.items() if direction in _ways(here, pair)}
    fault = here.fabric.inject(f"{leaf}--{spine}", "link-down")
    if not await _wait(job, lambda now: all(direction not in _ways(here, now[qp]) for qp in hit), 3.0):
        raise RuntimeError(f"not all of {len(hit)} queue pairs were moved: {here.said[-3:]}")
    await here.kill(victim)
    bad: set[str] = set()
    if victim == "agent":
        await here.start(victim)
    end_s = time.monotonic() + 2 * LEASE_S
    while time.monotonic() < end_s:
        now = await _pairs(job)
        bad |= {qp for qp in hit if direction in _ways(here, now[qp])}
        await asyncio.sleep(0.1)
    if victim == "pipeline":
        await here.start(victim)
    here.fabric.heal(fault.id)
    back = await _wait(job, lambda now: all(now[qp]["path"] == before[qp]["path"] for qp in hit), 30.0)
    return len(bad), back, len(hit)


def _ways(here: Pieces, pair: dict[str, Any]) -> list[str]:
    parsed = queue_pair(pair)
    flows = parsed.flow(), parsed.answers()
    return [d for f in flows for d in here.fabric.path(f.src, f.dst, f.source_port, f.destination_port, f.protocol)]


async def _settled(here: Pieces, job: Job) -> None:
    """Wait until the last that an agent said of every queue pair is that it is armed."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        last = {
            s["target"].get("id"): s["state"]
            for s in here.said
            if s.get("action") == "failover" and s["host"] != "controller" and s["state"] != "refused"
        }
        if all(last.get(qp) == "accepted" for qp in await _pairs(job)):
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"not every queue pair was armed within 60 s; last outcomes: {here.said[-5:]}")
