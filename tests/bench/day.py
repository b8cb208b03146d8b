"""A day of bus time of a very small mesh through the whole pipeline with an archive that ages: what grows by the hour?

Three hosts flush every two seconds, so that an hour of bus time takes about 140 s of CPU; restarts, silence, losses,
new ports and new names go on as in `soak`, which has the larger mesh and the shorter time. The archive keeps rows as
long as the shipped settings say (`Retention`), by the bus's own time; its upkeep passes every ten minutes of that. Once
an hour: resident memory, Python's blocks, Arrow's bytes, the stages' saved states, the archive, CPU seconds.

A figure grows where its slope over the hours behind the `WARM_H`-th, times these hours, is more than two standard
errors and more than `NOISE` of its mean. ``--minutes N`` of the wall clock at most; what fitted is said. Hours go to
stderr as they end. The newest thousand findings, remembered for labels, fill up within a day and are said apart.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.retention import Retention
from sdfstream.archive.upkeep.passes_io import Upkeep
from sdfstream.numeric import codec
from sdfstream.records.slices import in_calls
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime.driver import Stage
from tests.bench.churn import Churn
from tests.bench.cpu import whole_s
from tests.bench.harness import Result, against, main
from tests.bench.probe_load import EPOCH_NS
from tests.bench.soak import Soak, rss_mb, slope

HOURS: Final = 24
MINUTES: Final = 75.0
"""Of the wall clock; `tests.bench` ends it a little later."""
WARM_H: Final = 7
"""Hours before figures are judged: detect remembers sessions that are gone for an hour, a table keeps rows for six."""
UPKEEP_S: Final = 600
NOISE: Final = 0.03
"""Of a figure's mean: no growth below that is told from an allocator's or a merge's chance."""
AGED_WITHIN_DAY: Final = ("raw_probe", "derived_owd", "state_clock")
"""Tables whose rows go within the hours judged; others grow by design until their days are over."""
MB: Final = 1e6


@dataclass
class Day:
    """The pipeline, its archive, and what was seen of both each hour."""

    soak: Soak
    engine: Engine
    upkeep: Upkeep
    folder: Path
    hours: list[dict[str, float]]

    def look(self, began: tuple[float, float]) -> dict[str, float]:
        """Figures of this hour: memory and states in MB, CPU in seconds since `began` (CPU s, wall s)."""
        gc.collect()
        found = {"rss_mb": rss_mb(), "blocks_m": sys.getallocatedblocks() / MB}
        found["arrow_mb"] = pa.total_allocated_bytes() / MB
        for stage in self.soak.stages:
            found[f"state_{stage.name}_mb"] = len(stage.snapshot()) / MB
        found["labels_mb"] = _labels_mb(self.soak.stages)
        found["state_detect_mb"] -= found["labels_mb"]
        tables = _tables(self.engine)
        found["aged_mb"] = sum(tables.get(name, (0, 0))[0] for name in AGED_WITHIN_DAY) / MB
        found["rest_mb"] = sum(size for name, (size, _) in tables.items() if name not in AGED_WITHIN_DAY) / MB
        found["parts"] = sum(parts for _, parts in tables.values())
        files = [p.stat().st_size for p in self.folder.rglob("*") if p.is_file()]
        found |= {"files": len(files), "disk_mb": sum(files) / MB}
        found |= {"cpu_s": whole_s() - began[0], "wall_s": time.monotonic() - began[1]}
        self.hours.append(found)
        return found


def _labels_mb(stages: Sequence[Stage]) -> float:
    """Of detect's state: what it remembers of the newest findings for an operator's labels, a thousand of them."""
    (detect,) = (stage for stage in stages if stage.name == "detect")
    learned = codec.load(detect.snapshot())["engines"]["learned"]
    return len(codec.dump({key: part for key, part in learned.items() if key.startswith("findings")})) / MB


def _tables(engine: Engine) -> dict[str, tuple[int, int]]:
    """Bytes on disk and parts of each table."""
    sql = (
        "SELECT table, sum(bytes_on_disk), count() FROM system.parts WHERE active AND database = currentDatabase()"
        " GROUP BY table"
    )
    return {name: (int(size), int(parts)) for name, size, parts in engine.rows(sql)}


def grows(hours: list[dict[str, float]], key: str) -> tuple[float, float, bool]:
    """(an hour's growth, its standard error, whether that is growth) of what was seen after `WARM_H`."""
    seen = np.array([h[key] for h in hours])
    each, error = slope(np.arange(seen.size, dtype=float), seen)
    return each, error, each * seen.size > max(2 * error * seen.size, NOISE * float(np.abs(seen).mean()))


def run(day: Day, mesh: Churn, hours: int, minutes: float) -> None:
    """Feed bus time until the hours or the minutes are over."""
    end_s, next_look_s, next_pass_s = time.monotonic() + minutes * 60, 3600, UPKEEP_S
    began = whole_s(), time.monotonic()
    for call in in_calls(mesh.run(hours * 3600 + 2)):
        now_s = (call[0].bus_at_ns - EPOCH_NS) / NS_PER_S
        if now_s >= next_pass_s:
            next_pass_s += UPKEEP_S
            day.upkeep.run()
        if now_s >= next_look_s:
            next_look_s += 3600
            found = day.look(began)
            print(len(day.hours), *(f"{k} {v:.4g}" for k, v in found.items()), file=sys.stderr, flush=True)
            began = whole_s(), time.monotonic()
            if began[1] > end_s:
                return
        day.soak.take(call)


def say(result: Result, day: Day, mesh: Churn) -> None:
    """Each figure: first and last hour judged, slope, verdict."""
    hours, counts = day.hours, day.soak.counts
    result.say(
        f"{len(hours)} of {HOURS} h of bus time, {len(mesh.hosts)} hosts, {mesh.paths} paths, "
        f"{counts['sdf.raw.probe.v1']:,} exchanges, {counts['sdf.event.finding.v1']:,} statements of findings; judged "
        f"from hour {WARM_H} on",
        hours=len(hours),
    )
    judged = hours[WARM_H:]
    if len(judged) < 4:
        result.say(f"fewer than four hours behind the first {WARM_H}: nothing is judged", flat=None)
        result.figures["by_hour"] = _rounded(hours)
        return
    growing = []
    for key in judged[0]:
        each, error, grown = grows(judged, key)
        by_design = key in ("rest_mb", "disk_mb", "wall_s", "parts", "files", "labels_mb")
        growing += [key] if grown and not by_design else []
        verdict = "grows by design" if grown and by_design else "GROWS" if grown else "flat"
        result.say(
            f"{key:18} hour 1 {hours[0][key]:9.3f}, hour {WARM_H + 1} {judged[0][key]:9.3f}, "
            f"last {judged[-1][key]:9.3f}; {each:+.4f} ± {error:.4f} an hour: {verdict}"
        )
    result.say(
        against("nothing grows but what is kept longer than a day", not growing), flat=not growing, growing=growing
    )
    result.figures["by_hour"] = _rounded(hours)


def _rounded(hours: list[dict[str, float]]) -> list[Mapping[str, float]]:
    return [{key: float(f"{value:.5g}") for key, value in hour.items()} for hour in hours]


def measure(result: Result, quick: bool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--hours", type=int, default=1 if quick else HOURS)
    parser.add_argument("--minutes", type=float, default=MINUTES)
    args = parser.parse_args()
    retention = Retention()
    mesh = Churn(np.random.default_rng(7), hosts=3, nics=1, peers=2, ports=2, rate_hz=2, flush_ns=2 * NS_PER_S)
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as made:
        folder = Path(made) / "archive"
        soak = Soak(folder, retention)
        assert soak.archive is not None
        try:
            with Engine.open(str(folder)) as engine:
                day = Day(soak, engine, Upkeep(engine, retention), folder, [])
                run(day, mesh, args.hours, args.minutes)
                say(result, day, mesh)
        finally:
            soak.archive.close_blocking()


if __name__ == "__main__":
    main("day", measure)
