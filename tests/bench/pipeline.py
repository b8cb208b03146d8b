"""Exchanges per second and core from probe messages to rows in chDB, each part's share, and the limit beside it.

As `sdfstream replay --stages sync,detect,archive` runs them: one thread steps the stages, the archive's worker and the
engine's threads insert. A core second is a CPU second of all of them, merges in the background included.
The limit is what the same exchanges cost without any code of ours: Arrow IPC encoded and decoded, and inserted by chDB.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from sdfstream import pipeline
from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.writer_io import Archive
from sdfstream.bus import codec
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import PROBE
from sdfstream.settings import Settings
from tests.bench.harness import Result, main
from tests.bench.probe_load import Load, messages


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Timed:
    """A stage, with the CPU time of its steps."""

    def __init__(self, stage: pipeline.Stage) -> None:
        self.stage = stage
        self.name, self.reads, self.counters = stage.name, stage.reads, stage.counters
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


def run(given: list[Message], folder: Path) -> dict[str, float]:
    """CPU seconds by part, and ``rows`` and ``archived``."""
    stages = [Timed(stage) for stage in pipeline.stages(Settings())]
    archive = Archive.open(ArchiveConfig(target=str(folder), bus_id="bench", limits=REPLAY))
    began, thread_began = cpu_s(), time.thread_time()

    def fed() -> Iterator[Message]:
        for message in given:
            archive.add_blocking([message])
            yield message

    made = 0
    for message in pipeline.replay(fed(), stages, None, None):
        made += message.rows
        archive.add_blocking([message])
    archive.flush_blocking()
    whole, thread = cpu_s() - began, time.thread_time() - thread_began
    archive.close_blocking()
    refused = sum(n for part in (*stages, archive) for k, n in part.counters.as_dict().items() if ".refused" in k)
    assert not refused, "the bench's own rows were refused"
    rows = sum(m.rows for m in given)
    spent = {stage.name: stage.cpu_s for stage in stages}
    spent["driver"] = thread - sum(spent.values())
    return spent | {"archive": whole - thread, "whole": whole, "rows": rows, "made": made}


def limit(given: list[Message], folder: Path) -> dict[str, float]:
    """CPU seconds of encoding and decoding `given`, and of chDB's insert of its rows."""
    began = cpu_s()
    for number, m in enumerate(given):
        headers, value = codec.encode(Output(m.topic, m.key, m.body), "b", number)
        codec.decode(m.topic, headers, value)
    coded = cpu_s()
    Archive.open(ArchiveConfig(target=str(folder), bus_id="limit", limits=REPLAY)).close_blocking()  # makes the tables
    ready = [bulk_rows(PROBE, given[i : i + 200], "limit").table for i in range(0, len(given), 200)]
    with Engine.open(str(folder)) as engine:
        built = cpu_s()
        for number, table in enumerate(ready):
            engine.insert("raw_probe", table, str(number))
        done = cpu_s()
    return {"codec": coded - began, "insert": done - built}


def measure(result: Result, quick: bool) -> None:
    loads = [Load(seconds=2 if quick else 6, flush_s=1.0), Load(seconds=1 if quick else 3, flush_s=0.1)]
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        run(list(messages(Load(seconds=1), np.random.default_rng(2))), Path(folder) / "warm-up")
        for number, load in enumerate(loads):
            given = list(messages(load, np.random.default_rng(1)))
            whole = run(given, Path(folder) / f"a{number}")
            bare = limit(given, Path(folder) / f"b{number}")
            _say(result, load, len(given), whole, bare)


def _say(result: Result, load: Load, count: int, spent: dict[str, float], bare: dict[str, float]) -> None:
    rows, whole = spent["rows"], spent["whole"]
    rate, most = rows / whole, rows / (bare["codec"] + bare["insert"])
    parts = [part for part in spent if part not in ("whole", "rows", "made")]
    shares = ", ".join(f"{p} {spent[p] / whole:.0%} ({spent[p] / rows * 1e6:.2f} µs)" for p in parts)
    per_message = rows / count
    result.say(
        f"{per_message:,.0f} rows a message: {rate:,.0f} exchanges/s per core ({rows:,} exchanges of {load.paths:,} "
        f"paths, {load.hosts} clocks; {spent['made']:,} rows made): {shares}"
    )
    result.say(
        f"  limit {most:,.0f}/s per core (Arrow there and back {bare['codec'] / rows * 1e6:.2f} µs, chDB insert "
        f"{bare['insert'] / rows * 1e6:.2f} µs): we reach {rate / most:.0%} of it"
    )
    key = f"rows_{per_message:.0f}"
    result.figures[key] = {
        "exchanges_per_core_s": round(rate),
        "limit_per_core_s": round(most),
        "share": {p: round(spent[p] / whole, 3) for p in parts},
        "us_per_exchange": {p: round(spent[p] / rows * 1e6, 3) for p in parts},
        "limit_us": {k: round(v / rows * 1e6, 3) for k, v in bare.items()},
    }


if __name__ == "__main__":
    main("pipeline", measure)
