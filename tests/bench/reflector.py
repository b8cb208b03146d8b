"""Reverse one-way delay over an idle path while the reflector's host is busy: kernel stamps, follow-up t3.

Sender and reflector are agents of their own on two hosts of a small lab (two veth hops through a leaf, no queue
between them), without and with two processes that do nothing but spin. All stamps are one kernel's, so t4 − t3 needs
no clock correction. Beside it stands the probe's stay in the reflector, t3 − t2: late waking and slow answering, which
the follow-up keeps out of the delay.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

import numpy as np

from sdfstream.bus.memory.reader_io import MemorySubscription
from sdfstream.errors import LabUnavailableError
from sdfstream.lab import Fabric, FabricSpec, MeshSpec
from sdfstream.records import columns
from sdfstream.records.units import ABSENT_NS, StampKind
from tests.bench.agents import agent, taken
from tests.bench.harness import Result, SkippedError, against, hogs, main

HOGS = 2
RATE_HZ = 50.0
PORTS = 8
GOAL_NS = 30_000
_START_S = 30.0


def measure(result: Result, quick: bool) -> None:
    spec = FabricSpec(hosts=2, rails=1, leaves=1, spines=1, name=f"bench-{os.getpid()}")
    try:
        fabric = Fabric.up(spec)
    except LabUnavailableError as error:
        raise SkippedError(f"no lab on this machine: {error}") from error
    with fabric, tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        for count in (HOGS,) if quick else (0, HOGS):
            delays = asyncio.run(_delays(fabric, Path(folder), count, seconds=1.5 if quick else 12.0))
            _say(result, count, *delays)


async def _delays(fabric: Fabric, folder: Path, count: int, seconds: float) -> tuple[np.ndarray, np.ndarray, int]:
    """Reverse delays and turn-rounds in ns, and the number of exchanges."""
    mesh = MeshSpec(peers_per_nic=1, ports_per_peer=PORTS, rate_hz=RATE_HZ, trace_interval_s=0.0)
    sender, reflector = fabric.agent_config(mesh, ["h00"]), fabric.agent_config(mesh, ["h01"])
    async with taken(folder) as (link, rows):
        with agent(reflector, folder, "reflector", link), agent(sender, folder, "sender", link), hogs(count):
            await _settled(rows)
            return await _rows(rows, seconds)


async def _settled(rows: MemorySubscription) -> None:
    """Two seconds after the sender's first rows, however long the agents take to start beside others."""
    async with asyncio.timeout(_START_S):
        while not any(message.key == "h00" for message in await rows.read(timeout_s=_START_S)):
            await rows.commit()
    await _rows(rows, 2.0)


async def _rows(rows: MemorySubscription, seconds: float) -> tuple[np.ndarray, np.ndarray, int]:
    loop = asyncio.get_running_loop()
    end_s = loop.time() + seconds
    reverse, turn, exchanges = [], [], 0
    while (left_s := end_s - loop.time()) > 0:
        for message in await rows.read(timeout_s=left_s):
            if message.key != "h00":  # the other end probes, too, but it is the reflector that is asked for
                continue
            t2, t3, t4 = (columns.instants(message.body, f"t{i}_ns") for i in (2, 3, 4))
            stamped = [columns.values(message.body, f"t{i}_kind") == StampKind.KERNEL for i in (2, 3, 4)]
            whole = (t4 != ABSENT_NS) & np.logical_and.reduce(stamped)
            exchanges += message.rows
            reverse.append((t4 - t3)[whole])
            turn.append((t3 - t2)[whole])
        await rows.commit()
    if not reverse:
        return np.empty(0), np.empty(0), exchanges
    return np.concatenate(reverse), np.concatenate(turn), exchanges


def _say(result: Result, count: int, reverse: np.ndarray, turn: np.ndarray, exchanges: int) -> None:
    assert reverse.size > 100, f"only {reverse.size} of {exchanges} exchanges had kernel stamps throughout"
    p50, p99, worst = (float(v) / 1e3 for v in (*np.percentile(reverse, [50, 99]), reverse.max()))
    stay50, stay99 = (float(v) / 1e3 for v in np.percentile(turn, [50, 99]))
    line = f"{count} hogs: reverse one-way delay p50 {p50:.1f} µs, p99 {p99:.1f}, worst {worst:.0f}"
    if count:
        line += f"; {against('p99 ≤ 30 µs', p99 * 1e3 <= GOAL_NS)}"
    result.say(line)
    result.say(
        f"  {reverse.size:,} of {exchanges:,} exchanges with kernel stamps throughout; stay in the reflector p50 "
        f"{stay50:.0f} µs, p99 {stay99:.0f}: what the follow-up keeps out of the delay"
    )
    result.figures[f"hogs_{count}"] = {
        "reverse_p50_us": round(p50, 2),
        "reverse_p99_us": round(p99, 2),
        "reverse_worst_us": round(worst, 1),
        "turn_p50_us": round(stay50, 1),
        "turn_p99_us": round(stay99, 1),
        "exchanges": exchanges,
        "kernel_stamped": int(reverse.size),
    }


if __name__ == "__main__":
    main("reflector", measure)
