"""A fabric whose hash ignores the source port: nothing may be steered, and the loop must say why.

The collision of `collision` cannot be made by ports here, so both jobs simply share whatever way the hash gives them;
a link on it goes down as well. Whatever happens, a source port selects no path, so no command may try.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

from sdfstream.emulator.rank_plan import JobSpec
from sdfstream.records.topics import COMMAND
from tests.bench.harness import Result
from tests.trials.collision import FABRIC, HOSTS, QPS, SLOW_MESH
from tests.trials.world import parsed, world

OBSERVED_S = 12.0


async def measure(result: Result, trials: int, seed: int) -> None:
    steers = armed = 0
    reasons: Counter[str] = Counter()
    spec = replace(FABRIC, hash_ignores_source_port=True, hash_seed=seed)
    async with world(spec, SLOW_MESH) as here:
        for i, hosts in enumerate(HOSTS):
            await here.start(JobSpec(f"job-{'ab'[i]}", hosts, qps=QPS, chunk_kb=16, message_mb=0.5))
        await asyncio.sleep(15.0)  # ways are traced
        for number in range(max(1, trials // 4)):
            pairs = parsed((await here.pairs()).values())
            links = sorted({d for p in pairs for d in here.ways(p) if d.startswith("s")})
            fault = None
            if number % 2 and links:
                spine, leaf = links[0].split("->")
                fault = here.fabric.inject(f"{leaf}--{spine}", "link-down")
            await asyncio.sleep(OBSERVED_S)
            if fault:
                here.fabric.heal(fault.id)
                await asyncio.sleep(3.0)
        for said in here.said:
            if said["topic"] == COMMAND.name:
                steers += said["action"] == "steer"
                armed += said["action"] == "failover"
        for refused in here.outcomes(state="refused", host="controller"):
            reasons[refused["why"].partition(":")[0]] += 1
        moved = sum(p["moved_at_ns"] is not None for p in (await here.pairs()).values())
    told = ", ".join(f"{why} {n}" for why, n in reasons.most_common(4)) or "none"
    met = "met" if steers == armed == moved == 0 and reasons else "NOT met"
    result.say(
        f"{steers} steers, {armed} armed failovers, {moved} queue pairs moved in {max(1, trials // 4)} observations "
        f"(goal 0: {met}); reasons told: {told}",
        steers=steers,
        armed=armed,
        moved=moved,
        reasons=dict(reasons),
        seed=seed,
    )
