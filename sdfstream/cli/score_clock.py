"""``sdfstream score clock``: the published laws and troubles over many seeds, on all cores."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Any, Final

from sdfstream.cli.output import emit, progress
from sdfstream.errors import ConfigError

SEEDS: Final = 10
QUICK_SEEDS: Final = 2


def run(args: argparse.Namespace) -> int:
    """Run, judge, print."""
    from sdfstream.score.clock_laws import CASES

    by_name = {case.name: case for case in CASES}
    wanted = args.only or list(by_name)
    if unknown := [name for name in wanted if name not in by_name]:
        raise ConfigError(f"--only: no case '{unknown[0]}'; there are {', '.join(by_name)}")
    seeds = chosen_seeds(args)
    result: dict[str, Any] = {}
    with pool() as workers:
        waiting = {name: [workers.submit(one, name, seed) for seed in seeds] for name in wanted}
        for name, futures in waiting.items():
            result[name] = _gather(name, seeds, futures)
    emit(args.json, result, "\n".join(_text(name, card) for name, card in result.items()))
    return 0


def chosen_seeds(args: argparse.Namespace) -> list[int]:
    """``--seed N``: that one; ``--seeds N``: 1 to N; else ten, or two with ``--quick``."""
    if args.seed is not None:
        return [args.seed]
    count = args.seeds if args.seeds is not None else QUICK_SEEDS if args.quick else SEEDS
    if count < 1:
        raise ConfigError(f"--seeds must be at least 1, not {count}")
    return list(range(1, count + 1))


def pool() -> ProcessPoolExecutor:
    """A process per core, each of one thread: arrays are small, and threads of numpy would only wait for each other."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    return ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))


def one(name: str, seed: int) -> tuple[dict[str, float], float]:
    """Figures of one seed of a case, and the CPU seconds it took; runs in a worker."""
    from sdfstream.score.clock_laws import BY_NAME, run

    began = time.process_time()
    found = run(BY_NAME[name], seed)
    return found, time.process_time() - began


def _gather(name: str, seeds: list[int], futures: list[Future[tuple[dict[str, float], float]]]) -> dict[str, Any]:
    from sdfstream.score.clock_laws import BY_NAME, summary

    done = [future.result() for future in futures]
    cpu_s = sum(cpu for _, cpu in done) / len(done)
    progress(f"{name}: {len(seeds)} seeds, {cpu_s:.1f} s of CPU each")
    card = summary(BY_NAME[name], [found for found, _ in done])
    figures = {k: card["median"][k] for k in ("rms", "p99", "max", "covered") if k in card["median"]}
    return {**figures, **card, "seeds": seeds, "cpu_s": round(cpu_s, 2)}


def _text(name: str, card: dict[str, Any]) -> str:
    lines = [f"{name} (seeds {card['seeds'][0]}-{card['seeds'][-1]}): median / worst"]
    for figure, median in card["median"].items():
        limit = card["limits"].get(figure, card["limits"].get(f"least_{figure}"))
        told = "" if limit is None else f"   limit {limit:g}"
        lines.append(f"  {figure:18s} {median:12.4g} / {card['worst'][figure]:.4g}{told}")
    missed = [k for k, ok in card["met"].items() if not ok]
    lines.append(f"  {'not met: ' + ', '.join(missed) if missed else 'all limits met'}")
    return "\n".join(lines)
