"""Half an hour of a mesh in which everything changes, through the whole pipeline in one process: does memory grow?

Stages, archive and boards of the one-process pipeline, fed by `churn` as fast as it goes (30 minutes of bus time; with
``--wall`` at its own pace). Resident memory is sampled every 10 s of bus time; the slope over what follows the
first third is fitted, its error taken from ten blocks, since neighbouring samples are alike. ``--seconds N`` for
another length; ``--bare`` without the archive; ``--weigh`` names what grew in every component; ``--trace`` the lines
that allocated it (slow).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from sdfstream import pipeline
from sdfstream.archive.config import LIVE, ArchiveConfig
from sdfstream.archive.retention import Retention
from sdfstream.archive.writer_io import Archive
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.records.message import Message
from sdfstream.records.slices import in_calls
from sdfstream.records.topics import ARCHIVED
from sdfstream.records.units import NS_PER_S
from sdfstream.runtime import replay
from sdfstream.settings import Settings
from tests.bench.churn import Churn
from tests.bench.harness import Result, against, main
from tests.bench.probe_load import EPOCH_NS
from tests.bench.weigh import grown, weigh

SECONDS = 1800
SAMPLE_S = 10
GOAL_MB_H = 10.0
"""Flat: no more than this an hour, beyond what the fit's error explains."""
PAGE = resource.getpagesize()


def rss_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 1e6


class Soak:
    """The one-process pipeline, stepped by hand, and what it weighs."""

    def __init__(self, folder: Path | None, retention: Retention | None = None) -> None:
        self.stages = pipeline.stages(Settings())
        self.chain = replay.Chain(self.stages)
        self.chain.start(EPOCH_NS)
        self.boards = [Board(), JobBoard()]
        limits = ArchiveConfig(str(folder), "soak", limits=LIVE, retention=retention) if folder else None
        self.archive = Archive.open(limits) if limits else None
        self.counts: Counter[str] = Counter()

    def take(self, call: list[Message]) -> None:
        for one in (*call, *self.chain.take(call)):
            self.counts[one.topic] += one.rows
            for board in self.boards:
                if one.topic in board.reads:
                    board.take([one])
            if self.archive is not None and one.topic in ARCHIVED:
                self.archive.add_blocking([one])

    def weigh(self) -> Counter[str]:
        parts: list[Any] = [*self.stages, *self.boards]
        found: Counter[str] = Counter()
        for part in parts:
            found += weigh(part, getattr(part, "name", type(part).__name__))
        gc.collect()
        found += Counter(f"objects {type(o).__module__}.{type(o).__qualname__}[]" for o in gc.get_objects())
        return found


def slope(at_h: np.ndarray, mb: np.ndarray) -> tuple[float, float]:
    """MB an hour and its standard error, from the means of ten blocks."""
    blocks = np.array_split(np.arange(at_h.size), min(10, at_h.size))
    x, y = (np.array([v[b].mean() for b in blocks]) for v in (at_h, mb))
    away = x - x.mean()
    fitted = float(away @ y / (away @ away))
    rest = y - y.mean() - fitted * away
    return fitted, float(np.sqrt(rest @ rest / (x.size - 2) / (away @ away)))


def soak(result: Result, args: argparse.Namespace, folder: Path | None) -> None:
    mesh = Churn(np.random.default_rng(7))
    run = Soak(folder)
    began_s, at_s, mb = time.monotonic(), [], []
    traced = first = None
    for call in in_calls(mesh.run(args.seconds)):
        now_s = (call[0].bus_at_ns - EPOCH_NS) / NS_PER_S
        if args.wall:
            time.sleep(max(0.0, began_s + now_s - time.monotonic()))
        if not at_s or now_s >= at_s[-1] + SAMPLE_S:
            at_s.append(now_s)
            mb.append(rss_mb())
            if first is None and now_s > args.seconds / 2:
                first = run.weigh() if args.weigh else Counter()
                traced = _snapshot() if args.trace else None
        run.take(call)
    if run.archive is not None:
        asyncio.run(run.archive.flush())
    _say(result, args, mesh, run, np.array(at_s), np.array(mb))
    if args.weigh:
        print("MB:", *(f"{x:.0f}" for x in mb), file=sys.stderr)
    if args.weigh and first is not None:
        for path, before, after in grown(first, run.weigh(), 1)[:60]:
            print(f"{before:>12,} → {after:>12,}  {path}", file=sys.stderr)
    if traced is not None:
        for line in _snapshot().compare_to(traced, "lineno")[:25]:
            print(line, file=sys.stderr)
    if run.archive is not None:
        run.archive.close_blocking()


def _snapshot() -> tracemalloc.Snapshot:
    gc.collect()
    return tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])


def _say(result: Result, args: argparse.Namespace, mesh: Churn, run: Soak, at_s: np.ndarray, mb: np.ndarray) -> None:
    used = at_s >= args.seconds / 3
    fitted, error = slope(at_s[used] / 3600, mb[used])
    flat = fitted <= GOAL_MB_H + 2 * error
    findings = run.counts["sdf.event.finding.v1"]
    result.say(
        f"{args.seconds / 60:.0f} min of bus time{' at its own pace' if args.wall else ''}, {mesh.paths} paths, "
        f"{run.counts['sdf.raw.probe.v1']:,} exchanges, {findings} statements of findings: resident "
        f"{mb[0]:.0f} MB at first, {mb[used][0]:.0f} after a third, {mb[-1]:.0f} at the end"
    )
    judged = against(f"flat (≤ {GOAL_MB_H:.0f} MB/h)", flat)
    result.say(
        f"slope after the first third {fitted:+.1f} ± {error:.1f} MB/h; {judged}",
        slope_mb_h=round(fitted, 2),
        error_mb_h=round(error, 2),
        first_mb=round(float(mb[0]), 1),
        last_mb=round(float(mb[-1]), 1),
        findings=findings,
        flat=flat,
    )


def measure(result: Result, quick: bool) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=int, default=60 if quick else SECONDS)
    for flag in ("--wall", "--bare", "--weigh", "--trace"):
        parser.add_argument(flag, action="store_true")
    args = parser.parse_args()
    if args.trace:
        tracemalloc.start(10)
    with tempfile.TemporaryDirectory(prefix="sdf-bench-") as folder:
        soak(result, args, None if args.bare else Path(folder) / "archive")


if __name__ == "__main__":
    main("soak", measure)
