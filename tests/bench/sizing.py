"""What a fabric of so many hosts costs: CPU seconds a second of bus time of each part, memory, saved states, restores.

Every host has 9 NICs that probe 10 peers 16 times a second and flushes every 50 ms (the default agents of
`stage_cost`): 512 hosts make 737,280 exchanges/s. Sync runs in parts (four `sync-edge`, one `sync-mesh`), the other
stages in one piece, each with CPU time of its own; the archive (chDB, live inserts) is all else that the process
spends, merges meanwhile included. Bus time goes as fast as it can, slower than the wall clock for many hosts: CPU a
second of bus time counts. Making messages is not counted. Saved states are restored into fresh stages and timed.

``python -m tests.bench.sizing --hosts 512 [--seconds 60] [--minutes 10]``; without ``--hosts`` 8, 64 and 512 in turn.
CPU is said for each tenth of the counted time, so that what grows with bus time shows.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import numpy as np

from sdfstream import pipeline
from sdfstream.archive.config import LIVE, ArchiveConfig
from sdfstream.archive.retention import Retention
from sdfstream.archive.writer_io import Archive
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import ARCHIVED, ESTIMATE, PROBE
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.aside import AsideStage
from sdfstream.runtime.replay import Chain
from sdfstream.settings import Settings
from sdfstream.sync import SyncEdgeStage, SyncMeshStage
from tests.bench.cpu import whole_s
from tests.bench.harness import Result, main
from tests.bench.probe_load import EPOCH_NS, Load, messages
from tests.bench.soak import rss_mb
from tests.bench.stage_cost import Timed

EDGES: Final = 4
WARM_S: Final = 4
"""Bus time before anything is counted; clocks of `probe_load` converge in two."""


class Share(Timed):
    """A `sync-edge` that is given its share of the hosts."""

    def __init__(self, number: int) -> None:
        super().__init__(SyncEdgeStage(None, f"share{number}"))
        self.number = number

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        mine = [m for m in messages if m.topic != PROBE.name or crc32(m.key.encode()) % EDGES == self.number]
        return super().step(mine, now_ns)


@dataclass(slots=True)
class Parts(Chain):
    """Stages in a row whose estimates the edges get with their next call, as over a bus."""

    back: list[Message] = field(default_factory=list)

    def _step(self, messages: list[Message], *, tick: bool) -> Iterator[Message]:
        given, self.back = [*self.back, *messages], []
        for made in super(Parts, self)._step(given, tick=tick):
            if made.topic == ESTIMATE.name:
                self.back.append(made)
            yield made


class Pipeline:
    """All stages and an archive over one load."""

    def __init__(self, folder: Path) -> None:
        rest = [stage for stage in pipeline.stages(Settings()) if stage.name != "sync"]
        self.stages: list[Timed] = [*(Share(k) for k in range(EDGES)), *map(Timed, [SyncMeshStage(None), *rest])]
        self.chain = Parts(self.stages)
        self.chain.start(EPOCH_NS)
        self.archive = Archive.open(ArchiveConfig(str(folder), "sizing", limits=LIVE, retention=Retention()))
        self.rows = 0

    def take(self, given: Sequence[Message]) -> dict[str, float]:
        """CPU seconds of each part for these messages, which are inserted when this returns."""
        before, whole = [s.cpu_s for s in self.stages], whole_s()
        for call in in_calls(given):
            self.archive.add_blocking([one for one in (*call, *self.chain.take(call)) if one.topic in ARCHIVED])
        asyncio.run(self.archive.flush())
        spent: dict[str, float] = {}
        for stage, was in zip(self.stages, before, strict=True):
            spent[stage.name] = spent.get(stage.name, 0.0) + stage.cpu_s - was
        self.rows += sum(m.rows for m in given)
        return spent | {"archive": whole_s() - whole - sum(spent.values())}

    def restores(self) -> dict[str, tuple[float, float, float]]:
        """Of each stage its saved state's bytes and the seconds of saving and of restoring it."""
        fresh = [SyncEdgeStage(None, "share0"), SyncMeshStage(None), *pipeline.stages(Settings())]
        found = {}
        for stage in fresh:
            running: Any = next((s for s in self.stages if s.name == stage.name), None)
            if running is None:
                continue
            began = time.perf_counter()
            state = running.snapshot()
            saved = time.perf_counter()
            AsideStage(stage).restore(state)
            found[stage.name] = (len(state), saved - began, time.perf_counter() - saved)
        return found


def measured(result: Result, hosts: int, seconds: int, minutes: float) -> None:
    """One size of fabric."""
    load = Load(hosts=hosts, nics=9, peers=10, ports=1, rate_hz=16, flush_s=0.05, seconds=WARM_S + seconds)
    end_s, chunks, rows = time.monotonic() + minutes * 60, [], []
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        path = Pipeline(Path(folder) / "archive")
        stream = messages(load, np.random.default_rng(1))
        for second, several in groupby(stream, lambda m: (m.bus_at_ns - EPOCH_NS) // NS_PER_S):
            spent = path.take(list(several))
            if second >= WARM_S:
                chunks.append(spent)
                rows.append(rss_mb())
            if time.monotonic() > end_s:
                break
        restores = path.restores()
        path.archive.close_blocking()
        disk_b = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
    _say(result, load, chunks[:-1], rows[:-1], restores, disk_b / max(1, path.rows))  # the last second may be a part


def _say(
    result: Result,
    load: Load,
    chunks: list[dict[str, float]],
    rss: list[float],
    restores: dict[str, tuple[float, float, float]],
    row_b: float,
) -> None:
    rate = load.paths * load.rate_hz
    if not chunks:
        result.say(f"{load.hosts} hosts: no whole second of bus time fitted")
        return
    each = {name: float(np.mean([c[name] for c in chunks])) for name in chunks[0]}
    whole = sum(each.values())
    tenths = [
        float(np.mean([sum(c.values()) for c in part])) for part in np.array_split(np.array(chunks), 10) if part.size
    ]
    result.say(
        f"{load.hosts} hosts, {rate:,} exchanges/s, {len(chunks)} s of bus time: {whole:.2f} CPU s a second "
        f"({whole / rate * 1e9:,.0f} ns an exchange); memory {rss[0]:,.0f} MB at first, {rss[-1]:,.0f} in the end; "
        f"files {row_b:.0f} bytes an exchange, unmerged"
    )
    result.say("  " + ", ".join(f"{name} {spent:.3f}" for name, spent in each.items()))
    result.say("  by tenth: " + " ".join(f"{one:.2f}" for one in tenths))
    for name, (size, saved_s, restored_s) in restores.items():
        result.say(f"  state of {name}: {size / 1e6:.2f} MB, saved in {saved_s:.3f} s, restored in {restored_s:.3f} s")
    result.figures[str(load.hosts)] = {
        "exchanges_hz": rate,
        "seconds": len(chunks),
        "cpu_s_per_s": {name: round(spent, 4) for name, spent in each.items()},
        "by_tenth": [round(one, 3) for one in tenths],
        "rss_mb": [round(rss[0]), round(rss[-1])],
        "file_bytes_per_exchange": round(row_b, 1),
        "restores": {name: [size, round(a, 4), round(b, 4)] for name, (size, a, b) in restores.items()},
    }


def measure(result: Result, quick: bool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hosts", type=int, action="append")
    parser.add_argument("--seconds", type=int, default=3 if quick else 60)
    parser.add_argument("--minutes", type=float, default=10.0, help="of the wall clock, for each size")
    args = parser.parse_args()
    for hosts in args.hosts or ([8] if quick else [8, 64, 512]):
        measured(result, hosts, args.seconds, args.minutes)


if __name__ == "__main__":
    main("sizing", measure)
