"""From a probe's leaving (t1) to its corrected one-way delay on the bus, at 92,160 exchanges a second on two cores.

The shipped one-process pipeline (stages, archive, boards, doors) with agents simulated: 64 hosts as shipped, 9 NICs ×
10 peers, 16 probes a second on every path, 72 rows a message, all made before and put on the bus at their time. A row
waits one interval for its follow-up and then for its agent's flush (50 ms, the default; every host at a moment of its
own), as the agents of `freshness` do with real packets.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from sdfstream.records import columns
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import OWD
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import loop_io
from sdfstream.runtime.live_io import Watcher
from sdfstream.serve.service_io import service
from sdfstream.settings import Settings
from tests.bench.harness import Result, against, main
from tests.bench.probe_load import EPOCH_NS, Load, messages

GOAL_MS = 250.0
GOAL_CORES = 0.5
WARM_S = 6
WINDOW_NS = 100_000_000


def measure(result: Result, quick: bool) -> None:
    warm_s, seconds = (3, 2) if quick else (WARM_S, 12)
    hosts = 8 if quick else 64
    load = Load(hosts=hosts, nics=9, ports=1, flush_s=0.05, seconds=warm_s + seconds, wait_ms=63, apart_ns=0.0)
    given = list(messages(load, np.random.default_rng(1)))
    loop_io.run(_measure(result, load, given, warm_s))


async def _measure(result: Result, load: Load, given: list[Message], warm_s: int) -> None:
    shown: list[tuple[int, np.ndarray]] = []

    async def keep(told: Sequence[Message]) -> None:
        shown.extend((m.bus_at_ns, columns.values(m.body, "at_ns")) for m in told)

    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        async with service(Settings(data=Path(folder)), watchers=[Watcher("bench", (OWD.name,), keep)]) as running:
            gc.freeze()  # as the shipped process does, and of what is to be sent
            start_ns = time.time_ns()
            late_s, used = 0.0, 0.0
            for message in given:
                due_ns = start_ns + message.bus_at_ns - EPOCH_NS
                wait_s = (due_ns - time.time_ns()) / NS_PER_S
                late_s = max(late_s, -wait_s)
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                if used == 0.0 and due_ns - start_ns > warm_s * NS_PER_S:
                    used = time.process_time()
                out = Output(message.topic, message.key, message.body, message.boot_id, message.batch_seq)
                await running.bus.publish([out])
            used = time.process_time() - used
            await asyncio.sleep(1.0)
            counters = running.counters()
    _say(result, load, shown, start_ns, warm_s, late_s, used / (load.seconds - warm_s), counters)


def _say(
    result: Result,
    load: Load,
    shown: list[tuple[int, np.ndarray]],
    start_ns: int,
    warm_s: int,
    late_s: float,
    cores: float,
    counters: dict[str, int],
) -> None:
    # every window's rows come at once; its probes left evenly over it, so its age is that of its end and up to 100 ms
    came: dict[int, int] = {}
    for bus_ns, windows in shown:
        for window in np.unique(windows).tolist():
            came[window] = max(bus_ns, came.get(window, 0))
    low, high = EPOCH_NS + warm_s * NS_PER_S, EPOCH_NS + load.seconds * NS_PER_S - NS_PER_S
    ends = np.array([bus - start_ns - (w - EPOCH_NS) for w, bus in came.items() if low <= w < high])
    ages = ((ends[:, None] - np.linspace(0, WINDOW_NS, 101)[None, :]) / 1e6).ravel()
    p50, p99, worst = (float(v) for v in (*np.percentile(ages, [50, 99]), ages.max()))
    rate = load.paths * load.rate_hz
    late, all_rows = counters.get("sync.owd-late", 0), counters.get("sync.received", 1)
    result.say(
        f"{rate:,} exchanges/s of {load.paths:,} paths, {load.hosts / load.flush_s:,.0f} messages/s: probe leaves to "
        f"corrected delay on the bus: p50 {p50:.0f} ms, p99 {p99:.0f}, worst {worst:.0f}; "
        f"{against('p99 ≤ 250 ms', p99 <= GOAL_MS)}",
        exchanges_per_s=rate,
        owd_p50_ms=round(p50, 1),
        owd_p99_ms=round(p99, 1),
        owd_worst_ms=round(worst, 1),
    )
    result.say(
        f"meanwhile {cores:.2f} cores used, {against(f'{GOAL_CORES}', cores <= GOAL_CORES)}; "
        f"{late / all_rows:.1%} of all rows came after their window had closed; "
        f"messages were put on the bus up to {late_s * 1e3:.0f} ms late",
        cores=round(cores, 2),
        late_share=round(late / all_rows, 4),
        source_late_ms=round(late_s * 1e3, 1),
    )


if __name__ == "__main__":
    main("freshness_mesh", measure)
