"""What an agent costs its host, as an ordinary user: 9 NICs × 10 peers × 16 probes a second; 64 watched paths × 100.

Over loopback: the agent sends so many probes a second to its far NICs and answers as many from them, reads all kernel
stamps, judges liveness, reads port counters and publishes as many rows. The far NICs of the first shape belong to five
processes, so that probes come in at times of their own as from different hosts. CPU time of the one agent's process
(the kernel's work for its packets included), resident memory, wake-ups.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from sdfstream.bus.memory.reader_io import MemorySubscription
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from tests.bench.agents import NOBODY, agent, taken
from tests.bench.harness import Result, against, main, spread, usage

PORT = 28_620
MOST_MB = 70


@dataclass(frozen=True)
class Shape:
    """What one agent has to do."""

    name: str
    nics: int
    peers: int
    far_hosts: int
    source_ports: tuple[int, ...]
    rate_hz: float
    most_cpu: float
    """The goal, cores."""

    @property
    def near(self) -> tuple[NicConfig, ...]:
        """The NICs of the host that is measured."""
        return tuple(NicConfig(f"ha/r{i}", "lo", f"127.0.83.{i + 1}", plane="backend") for i in range(self.nics))

    def far(self, host: int) -> tuple[NicConfig, ...]:
        """The NICs of one far host."""
        each = self.peers // self.far_hosts
        numbers = range(host * each, (host + 1) * each)
        return tuple(NicConfig(f"hb{host}/r{k}", "lo", f"127.0.84.{k + 1}", plane="backend") for k in numbers)

    def config(self, host: str, nics: tuple[NicConfig, ...], peers: tuple[NicConfig, ...]) -> AgentConfig:
        """Every NIC of `nics` probes every one of `peers`."""
        sessions = tuple(
            SessionConfig(n.nic, p.nic, p.address, PORT, self.source_ports, rate_hz=self.rate_hz)
            for n in nics
            for p in peers
        )
        return AgentConfig((HostConfig(host, nics, sessions),), reflector_port=PORT)


SHAPES = (
    Shape("mesh", nics=9, peers=10, far_hosts=5, source_ports=(28_700,), rate_hz=16.0, most_cpu=0.05),
    Shape(
        "watch", nics=1, peers=1, far_hosts=1, source_ports=tuple(range(28_700, 28_764)), rate_hz=100.0, most_cpu=0.3
    ),
)


def measure(result: Result, quick: bool) -> None:
    for shape in SHAPES:
        with tempfile.TemporaryDirectory(prefix="sdf-bench-") as name:
            folder = Path(name)
            user = NOBODY if os.geteuid() == 0 else None
            if user is not None:
                folder.chmod(0o755)
            asyncio.run(_measure(result, shape, folder, user, periods=3 if quick else 8))


async def _measure(result: Result, shape: Shape, folder: Path, user: int | None, periods: int) -> None:
    async with taken(folder, user) as (link, rows):
        with contextlib.ExitStack() as far:
            nics = [shape.far(host) for host in range(shape.far_hosts)]
            for host, mine in enumerate(nics):
                name = f"hb{host}"
                far.enter_context(agent(shape.config(name, mine, shape.near), folder, name, link, user))
            everyone = tuple(nic for mine in nics for nic in mine)
            pid = far.enter_context(agent(shape.config("ha", shape.near, everyone), folder, "ha", link, user))
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
    in_c = "packet engine: in C" in (folder / "ha.log").read_text()
    result.say(
        f"{shape.name}: {rate:,.0f} exchanges/s of its own ({full:.1%} answered) and as many asked of it, {who}, "
        f"packets by {'the engine in C' if in_c else 'numpy: there is no compiler'}",
        **{f"{shape.name}_rows_per_s": round(rate), f"{shape.name}_answered": round(full, 4)},
    )
    if full < 0.98:
        result.say("  the machine was too busy for the far agents to answer: what follows says little")
    goal = against(f"≤ {shape.most_cpu:.0%}", mean <= shape.most_cpu)
    result.say(
        f"  CPU {mean:.1%} of one core (median of 2 s {median:.1%}, worst {worst:.1%}; {mean / rate * 1e6:.0f} µs an "
        f"exchange and answer); {goal}",
        **{f"{shape.name}_cpu_share": round(mean, 4), f"{shape.name}_cpu_share_worst": round(worst, 4)},
    )
    switches = (before.switches - first.switches) / wall_s
    result.say(
        f"  memory {before.rss_bytes / 1e6:.0f} MB resident, {before.peak_bytes / 1e6:.0f} MB at most; "
        f"{switches:.0f} wake-ups/s; {against(f'≤ {MOST_MB} MB', before.peak_bytes <= MOST_MB * 1e6)}",
        **{
            f"{shape.name}_rss_mb": round(before.rss_bytes / 1e6, 1),
            f"{shape.name}_peak_mb": round(before.peak_bytes / 1e6, 1),
            f"{shape.name}_wakeups_per_s": round(switches),
        },
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
