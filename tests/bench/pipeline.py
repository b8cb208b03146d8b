"""Exchanges per second and core from probe messages to rows in chDB, each part's share, and the limit beside it.

As `sdfstream replay --stages sync,detect,archive` runs them: one thread steps the stages, the archive's worker and the
engine's threads insert. A core second is a CPU second of all of them, merges in the background included. The first
seconds of bus time are not counted: sessions are met, clocks converge, the engine takes its memory.
The limit is what the same exchanges cost without any code of ours: Arrow IPC encoded and decoded, and inserted by chDB.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from sdfstream import pipeline
from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.writer_io import Archive
from sdfstream.bus import codec
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import PROBE
from sdfstream.runtime import replay
from sdfstream.runtime.driver import Stage
from sdfstream.settings import Settings
from tests.bench.cpu import by_thread, spent, whole_s
from tests.bench.harness import Result, main
from tests.bench.probe_load import Load, messages

WARM_S = 8
"""Bus time before anything is counted; an agent's first message makes detect wary of it for five seconds."""


class Timed:
    """A stage, with the CPU time of its steps."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.name, self.reads, self.writes, self.counters = stage.name, stage.reads, stage.writes, stage.counters
        self.cpu_s = 0.0

    def step(self, given: Sequence[Message], now_ns: int) -> list[Output]:
        began = time.thread_time()
        outputs = self.stage.step(given, now_ns)
        self.cpu_s += time.thread_time() - began
        return outputs

    def finish(self, now_ns: int) -> list[Output]:
        began = time.thread_time()
        outputs = self.stage.finish(now_ns)
        self.cpu_s += time.thread_time() - began
        return outputs

    def snapshot(self) -> bytes:
        return self.stage.snapshot()

    def restore(self, state: bytes) -> None:
        self.stage.restore(state)


class Run:
    """Stages and archive over one stream of messages that may be given in parts."""

    def __init__(self, folder: Path) -> None:
        self.stages = [Timed(stage) for stage in pipeline.stages(Settings())]
        self.archive = Archive.open(ArchiveConfig(target=str(folder), bus_id="bench", limits=REPLAY))
        self.chain = replay.Chain(self.stages)
        self.made = 0

    def take(self, given: Sequence[Message]) -> dict[str, float]:
        """Take `given` to the end, the archive included: CPU seconds by part, ``whole`` and ``rows``."""
        threads, began, main_began = by_thread(), whole_s(), time.thread_time()
        stages = {stage.name: stage.cpu_s for stage in self.stages}
        if not self.made:
            self.chain.start(given[0].bus_at_ns)
        for call in in_calls(given):
            self.archive.add_blocking(call)
            outputs = list(self.chain.take(call))
            self.made += sum(output.rows for output in outputs)
            self.archive.add_blocking(outputs)
        asyncio.run(self.archive.flush())
        whole, main_s = whole_s() - began, time.thread_time() - main_began
        parts = {stage.name: stage.cpu_s - stages[stage.name] for stage in self.stages}
        parts["driver"] = main_s - sum(parts.values())
        threads_s = spent(threads, by_thread())
        parts |= {"rows": threads_s.get("archive", 0.0), "merge": threads_s.get("merge", 0.0)}
        parts["insert"] = max(0.0, whole - sum(parts.values()))  # the engine ends an insert's threads with it
        return parts | {"whole": whole, "count": sum(m.rows for m in given)}

    def close(self) -> None:
        self.archive.close_blocking()
        for part in (*self.stages, self.archive):
            refused = {k: n for k, n in part.counters.as_dict().items() if ".refused" in k and n}
            assert not refused, f"the bench's own rows were refused: {refused}"


def limit(given: Sequence[Message], folder: Path) -> dict[str, float]:
    """CPU seconds of encoding and decoding `given`, and of chDB's insert of its rows, memory taken before."""
    began = whole_s()
    for number, m in enumerate(given):
        headers, value = codec.encode(Output(m.topic, m.key, m.body), "b", number)
        codec.decode(m.topic, headers, value)
    coded = whole_s() - began
    Archive.open(ArchiveConfig(target=str(folder), bus_id="limit", limits=REPLAY)).close_blocking()  # makes the tables
    each = max(1, len(given) * REPLAY.rows // sum(m.rows for m in given))
    ready = [bulk_rows(PROBE, given[i : i + each], "limit").table for i in range(0, len(given), each)]
    with Engine.open(str(folder)) as engine:
        engine.insert("raw_probe", ready[0], "warm-up")
        built = whole_s()
        for number, table in enumerate(ready):
            engine.insert("raw_probe", table, str(number))
        done = whole_s()
    return {"codec": coded, "insert": done - built}


def measure(result: Result, quick: bool) -> None:
    warm_s, seconds = (2, 2) if quick else (WARM_S, 9)
    hosts = 4 if quick else 64
    loads = [  # first as agents send by themselves
        Load(hosts=hosts, nics=9, ports=1, seconds=warm_s + seconds, flush_s=0.05),
        Load(hosts=hosts, seconds=warm_s + seconds, flush_s=1.0),
        Load(hosts=hosts, seconds=warm_s + (seconds + 1) // 3, flush_s=0.1),
    ]
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        for number, load in enumerate(loads):
            stream = messages(load, np.random.default_rng(1))
            path = Run(Path(folder) / f"a{number}")
            path.take(list(islice(stream, int(warm_s / load.flush_s) * load.hosts)))
            given = list(stream)
            before, third = path.made, -(-len(given) // 3)
            found = [path.take(given[low : low + third]) for low in range(0, len(given), third)]
            made = path.made - before
            path.close()
            bare = limit(given, Path(folder) / f"b{number}")
            _say(result, load, len(given), found, made, bare)


def _say(
    result: Result, load: Load, count: int, found: list[dict[str, float]], made: int, bare: dict[str, float]
) -> None:
    total = {key: sum(f[key] for f in found) for key in found[0]}
    rows, whole = total.pop("count"), total.pop("whole")
    rate, most = rows / whole, rows / (bare["codec"] + bare["insert"])
    rates = sorted(f["count"] / f["whole"] for f in found)
    shares = ", ".join(f"{p} {used / whole:.0%} ({used / rows * 1e9:,.0f} ns)" for p, used in total.items())
    per_message = rows / count
    result.say(
        f"{per_message:,.0f} rows a message: {rate:,.0f} exchanges/s per core (thirds {rates[0]:,.0f} to "
        f"{rates[-1]:,.0f}; {rows:,} exchanges of {load.paths:,} paths, {load.hosts} clocks; {made:,} rows made)"
    )
    result.say(f"  of it {shares}")
    result.say(
        f"  limit {most:,.0f}/s per core (Arrow there and back {bare['codec'] / rows * 1e9:.0f} ns, chDB insert "
        f"{bare['insert'] / rows * 1e9:.0f} ns): we reach {rate / most:.0%} of it"
    )
    key = f"rows_{per_message:.0f}"
    result.figures[key] = {
        "exchanges_per_core_s": round(rate),
        "limit_per_core_s": round(most),
        "share": {p: round(used / whole, 3) for p, used in total.items()},
        "ns_per_exchange": {p: round(used / rows * 1e9) for p, used in total.items()},
        "limit_ns": {k: round(v / rows * 1e9) for k, v in bare.items()},
    }


if __name__ == "__main__":
    main("pipeline", measure)
