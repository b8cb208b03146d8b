"""What an agent costs its host: 9 NICs × 10 peers × 16 probes a second, as an ordinary user.

Over loopback: the agent sends 1,440 probes a second to ten far NICs and answers 1,440 from them, reads all kernel
stamps, judges liveness, reads port counters and publishes 1,440 rows. The far NICs belong to five processes, so that
probes come in at times of their own as from different hosts. CPU time of the one agent's process (the kernel's work
for its packets included), resident memory, wake-ups.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path

from sdfstream.bus.memory.reader_io import MemorySubscription
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from tests.bench.agents import NOBODY, agent, taken
from tests.bench.harness import Result, against, main, spread, usage

NICS, PEERS, RATE_HZ = 9, 10, 16.0
PORT = 28_620


NEAR = tuple(NicConfig(f"ha/r{i}", "lo", f"127.0.83.{i + 1}", plane="backend") for i in range(NICS))
FAR = tuple(NicConfig(f"hb{k // 2}/r{k % 2}", "lo", f"127.0.84.{k + 1}", plane="backend") for k in range(PEERS))


def config(host: str, nics: tuple[NicConfig, ...], peers: tuple[NicConfig, ...]) -> AgentConfig:
    """Every NIC of `nics` probes every one of `peers`."""
    sessions = tuple(
        SessionConfig(n.nic, p.nic, p.address, PORT, (28_700,), rate_hz=RATE_HZ) for n in nics for p in peers
    )
    return AgentConfig((HostConfig(host, nics, sessions),), reflector_port=PORT)


def measure(result: Result, quick: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as name:
        folder = Path(name)
        user = NOBODY if os.geteuid() == 0 else None
        if user is not None:
            folder.chmod(0o755)
        asyncio.run(_measure(result, folder, user, periods=3 if quick else 8))


async def _measure(result: Result, folder: Path, user: int | None, periods: int) -> None:
    async with taken(folder, user) as (link, rows):
        with contextlib.ExitStack() as far:
            for k in range(0, PEERS, 2):
                name = f"hb{k // 2}"
                far.enter_context(agent(config(name, FAR[k : k + 2], NEAR), folder, name, link, user))
            pid = far.enter_context(agent(config("ha", NEAR, FAR), folder, "ha", link, user))
            await _count(rows, 4.0)  # start-up is not what is asked for
            shares, before = [], usage(pid)
            first, wall_s, near, answered = before, 0.0, 0, 0
            for _ in range(periods):
                took_s, n, full = await _count(rows, 2.0)
                after = usage(pid)
                shares.append((after.cpu_s - before.cpu_s) / took_s)
                before, wall_s, near, answered = after, wall_s + took_s, near + n, answered + full
    mean = (before.cpu_s - first.cpu_s) / wall_s
    median, _, worst = spread(shares)
    rate = near / wall_s
    full = answered / max(near, 1)
    who = "user nobody, no capability" if user is not None else "this user"
    result.say(
        f"{rate:,.0f} exchanges/s of its own ({full:.1%} answered) and as many asked of it, {who}",
        rows_per_s=round(rate),
        answered=round(full, 4),
    )
    if full < 0.98:
        result.say("  the machine was too busy for the far agents to answer: what follows says little")
    result.say(
        f"CPU {mean:.1%} of one core (median of 2 s {median:.1%}, worst {worst:.1%}; {mean / rate * 1e6:.0f} µs an "
        f"exchange and answer); {against('≤ 10 %', mean <= 0.10)}",
        cpu_share=round(mean, 4),
        cpu_share_worst=round(worst, 4),
    )
    result.say(
        f"memory {before.rss_bytes / 1e6:.0f} MB resident, {before.peak_bytes / 1e6:.0f} MB at most; "
        f"{(before.switches - first.switches) / wall_s:.0f} wake-ups/s; "
        f"{against('≤ 150 MB', before.peak_bytes <= 150e6)}",
        rss_mb=round(before.rss_bytes / 1e6, 1),
        peak_mb=round(before.peak_bytes / 1e6, 1),
        wakeups_per_s=round((before.switches - first.switches) / wall_s),
    )


async def _count(rows: MemorySubscription, seconds: float) -> tuple[float, int, int]:
    """Take rows for `seconds`; how long it took, the near agent's rows, and those of them that were answered."""
    loop = asyncio.get_running_loop()
    began, near, answered = loop.time(), 0, 0
    while (left_s := began + seconds - loop.time()) > 0:
        for message in await rows.read(timeout_s=left_s):
            if message.key == "ha":
                near += message.rows
                answered += message.rows - message.body.column("t4_ns").null_count
        await rows.commit()
    return loop.time() - began, near, answered


if __name__ == "__main__":
    main("agent_cost", measure)
