"""Where faults are laid to: exact, in the ambiguity set, or wrong, by fabric, fault and quality of the map.

``python -m tests.bench.localise [--quick] [--seeds N] [--jobs N]``. Every run is the whole detect stage on a simulated
fabric. What no evidence can tell apart is counted as it falls: with two pods and no traced way back, a link's
direction up and the next one down carry the same paths.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from typing import Any

import numpy as np

from tests.bench.harness import Result, main
from tests.fixtures.fault_cases import FAULT_CASES, MAPS, SHAPES, Found, play

Key = tuple[str, str, str]


def one(job: tuple[Key, int]) -> tuple[Key, Found]:
    (shape, fault, map_), seed = job
    return (shape, fault, map_), play(FAULT_CASES[fault], SHAPES[shape], MAPS[map_], seed)


def everything(seeds: int, processes: int, first: int = 500) -> dict[Key, list[Found]]:
    work = [
        ((shape, fault, map_), first + seed)
        for shape in SHAPES for fault in FAULT_CASES for map_ in MAPS for seed in range(seeds)
    ]  # fmt: skip
    found: dict[Key, list[Found]] = {}
    if processes > 1:
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            for key, result in pool.imap(one, work, chunksize=4):
                found.setdefault(key, []).append(result)
    else:
        for job in work:
            key, result = one(job)
            found.setdefault(key, []).append(result)
    return found


def calibration(results: list[Found]) -> list[tuple[str, int, float, float]]:
    """(bin, suspects, mean probability claimed, share that was the target) over all suspects."""
    pairs = np.array([(p, hit) for r in results for p, hit in r.suspects], np.float64).reshape(-1, 2)
    rows = []
    for low, high in ((0, 0.05), (0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.9), (0.9, 1.001)):
        mine = pairs[(pairs[:, 0] >= low) & (pairs[:, 0] < high)]
        if len(mine):
            rows.append((f"{low:.2f}-{min(high, 1):.2f}", len(mine), *(float(x) for x in mine.mean(axis=0))))
    return rows


def measure(result: Result, quick: bool) -> None:
    report(result, everything(1 if quick else 2, 2))


def report(result: Result, found: dict[Key, list[Found]]) -> None:
    each = next(iter(found.values()))
    result.say(f"{len(each)} seeds of each; exact / in the ambiguity set / symptom / wrong / missed (+ extra findings)")
    for shape in SHAPES:
        result.say(f"{shape:19}" + "".join(f"{m:>24}" for m in MAPS))
        for fault in FAULT_CASES:
            result.say(f"  {fault:17}" + "".join(f"{_cell(found[shape, fault, m]):>24}" for m in MAPS))
    for map_ in MAPS:
        results = [r for (_, _, m), rs in found.items() if m == map_ for r in rs]
        verdicts = Counter(r.verdict for r in results)
        result.figures[map_] = {**verdicts, "runs": len(results), "extra": sum(r.extra for r in results)}
        top = [r for r in results if r.confidence is not None]
        said = float(np.mean([r.confidence for r in top])) if top else 0.0
        true = float(np.mean([r.verdict == "exact" for r in top])) if top else 0.0
        result.say(
            f"{map_:18} exact {verdicts['exact'] / len(results):.0%}, exact or in the set "
            f"{(verdicts['exact'] + verdicts['set']) / len(results):.0%}, wrong {verdicts['wrong'] / len(results):.0%};"
            f" confidence said {said:.2f}, true {true:.2f}"
        )
    rows = calibration([r for rs in found.values() for r in rs])
    result.figures["calibration"] = rows
    for name, n, said, true in rows:
        result.say(f"suspects at {name}: {n} of them, said {said:.2f}, true {true:.2f}")


def _cell(results: list[Found]) -> str:
    count: dict[str, Any] = Counter(r.verdict for r in results)
    extra = sum(r.extra for r in results)
    figures = "/".join(str(count[v]) for v in ("exact", "set", "symptom", "wrong", "missed"))
    return f"{figures}{f' +{extra}' if extra else ''}"


def alone() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    result = Result("localise")
    report(result, everything(args.seeds, args.jobs))
    print("\n".join(result.lines))
    print(json.dumps(result.figures))


if __name__ == "__main__":
    if "--seeds" in sys.argv:
        alone()
    else:
        main("localise", measure)
