"""What each stage costs at the shape that a small fabric makes by itself: CPU milliseconds a second of bus time.

Agents flush every 50 ms and stages tick every 100 ms, so that with few hosts nearly all of the cost comes of how often
something is done, not of how many rows there are. Two loads with the same messages and four times the rows tell the two
apart. The recording that is shipped is a small demo: ports, liveness and cabling are in it. Stages run as in a replay,
checks of their outputs included; no bus and no archive.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path as Folder

import numpy as np

from sdfstream import demo, pipeline
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.records.message import Message, Output
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S, TICK_NS
from sdfstream.runtime import replay
from sdfstream.runtime.aside import AsideStage
from sdfstream.settings import Settings
from tests.bench.harness import Result, main
from tests.bench.probe_load import Load, messages

DEMO = Load(hosts=8, nics=2, peers=12, ports=1, rate_hz=16, flush_s=0.05)
"""8 hosts × 2 NICs, 19 rows a message, 3,072 exchanges a second: what `sdfstream demo` makes."""
DEFAULT = Load(hosts=64, nics=9, peers=10, ports=1, rate_hz=16, flush_s=0.05)
"""64 hosts as agents probe unless told otherwise: 72 rows a message, 92,160 exchanges a second."""
SHIPPED = Folder(demo.__file__).parent / "shipped_recording"
WARM_S = 8
"""Bus time before anything is counted: clocks converge, detect trusts its agents."""


class Timed(AsideStage):
    """A stage as it runs, with the CPU time of all its steps, and of those at boundaries of 100 ms."""

    cpu_s = 0.0
    ticks_s = 0.0

    def step(self, messages: Sequence[Message], now_ns: int) -> list[Output]:
        began = time.thread_time()
        outputs = super().step(messages, now_ns)
        used = time.thread_time() - began
        self.cpu_s += used
        if now_ns % TICK_NS == 0:
            self.ticks_s += used
        return outputs


class Path:
    """All stages over one stream."""

    def __init__(self) -> None:
        self.stages = [Timed(stage) for stage in pipeline.stages(Settings())]
        self.chain = replay.Chain(self.stages)

    def take(self, given: Sequence[Message]) -> dict[str, tuple[float, float]]:
        """CPU ms a second of bus time of each stage's steps at boundaries, and of the others."""
        before = [(s.ticks_s, s.cpu_s) for s in self.stages]
        if not self.chain.ticker.last_ns:
            self.chain.start(given[0].bus_at_ns)
        for call in in_calls(given):
            for _ in self.chain.take(call):
                pass
        seconds = (given[-1].bus_at_ns - given[0].bus_at_ns) / NS_PER_S
        found = {}
        for (ticks_s, cpu_s), s in zip(before, self.stages, strict=True):
            ticked = s.ticks_s - ticks_s
            found[s.name] = (ticked / seconds * 1e3, (s.cpu_s - cpu_s - ticked) / seconds * 1e3)
        return found


def measured(stream: Iterator[Message], warm: int, parts: int) -> dict[str, tuple[float, float]]:
    """Of each stage the cheapest of `parts` equal parts of the stream behind its first `warm` messages."""
    path, given = Path(), list(stream)
    if warm:
        path.take(given[:warm])
    rest = given[warm:]
    size = len(rest) // parts
    found = [path.take(rest[low : low + size]) for low in range(0, size * parts, size)]
    return {name: min((f[name] for f in found), key=sum) for name in found[0]}


def measure(result: Result, quick: bool) -> None:
    warm_s, seconds = (1, 1) if quick else (WARM_S, 12)
    loads = {
        "demo": replace(DEMO, seconds=warm_s + seconds),
        "demo with four times the rows": replace(DEMO, peers=48, seconds=warm_s + seconds),
        "64 hosts": replace(DEFAULT, seconds=warm_s + seconds // 3),
        "64 hosts, clocks in NICs": replace(DEFAULT, seconds=warm_s + seconds // 3, nic_clocks=True),
    }
    totals = {}
    for name, load in loads.items():
        if quick and load.hosts == DEFAULT.hosts:
            continue
        warm = int(warm_s / load.flush_s) * load.hosts
        found = measured(messages(load, np.random.default_rng(1)), warm, 1 if quick else 6)
        rows_hz = load.paths * load.rate_hz
        totals[name] = rows_hz, sum(map(sum, found.values()))
        rows = round(rows_hz * load.flush_s / load.hosts)
        _say(result, name, f"{name}, {rows} rows a message", rows_hz, found)
    (few, low), (many, high) = totals["demo"], totals["demo with four times the rows"]
    each_ns = (high - low) / (many - few) * 1e6
    fixed = low - few * each_ns / 1e6
    result.say(
        f"demo: {fixed:.0f} ms a second whatever the rows, and {each_ns:,.0f} ns an exchange",
        fixed_ms_per_s=round(fixed, 1),
        ns_per_exchange=round(each_ns),
    )
    if not quick:
        recording = open_recording(SHIPPED)
        rows = sum(m.rows for m in open_recording(SHIPPED).messages([PROBE.name]))
        rows_hz = rows * NS_PER_S // (recording.end_at_ns - recording.start_at_ns)
        found = measured(recording.messages(recording.topics), 0, 1)
        _say(result, "recording", "shipped recording", rows_hz, found)


def _say(result: Result, key: str, name: str, rows_hz: float, found: dict[str, tuple[float, float]]) -> None:
    whole = sum(map(sum, found.values()))
    result.say(f"{name}, {rows_hz:,.0f} exchanges/s: {whole:.1f} ms a second of bus time (at boundaries + between)")
    for stage, (ticks, calls) in found.items():
        each = (ticks + calls) / rows_hz * 1e6
        result.say(f"  {stage:9}{ticks:7.1f} +{calls:7.1f} ms, {each:,.0f} ns an exchange")
    result.figures[key] = {
        "ms_per_s": round(whole, 1),
        "by_stage": {stage: [round(t, 1), round(c, 1)] for stage, (t, c) in found.items()},
    }


if __name__ == "__main__":
    main("stage_cost", measure)
