"""Score card of the clocks: ``python -m tests.bench.clock [--quick] [--seeds N] [--seed N] [--only CASE]… [--json]``.

Every case of ``sdfstream/score/clock_laws.py`` over ten seeds (``--quick``: three), errors in ns against simulated
truth: median and worst over the seeds beside the limits. ``--seed N`` runs that one seed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from sdfstream.score.clock_laws import CASES, Figures, run, summary

_BY_NAME = {case.name: case for case in CASES}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.clock", description=__doc__)
    parser.add_argument("--only", action="append", choices=_BY_NAME, help="this case; repeatable")
    parser.add_argument("--quick", action="store_true", help="three seeds instead of ten")
    parser.add_argument("--seeds", type=int, help="so many seeds, from 1")
    parser.add_argument("--seed", type=int, help="this one seed")
    parser.add_argument("--json", action="store_true", help="one JSON object in the last line, a key per case")
    args = parser.parse_args()
    seeds = [args.seed] if args.seed is not None else list(range(1, (args.seeds or (3 if args.quick else 10)) + 1))
    result: dict[str, Any] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for name in args.only or _BY_NAME:
            found = list(pool.map(_one, [(name, seed) for seed in seeds]))
            result[name] = {"seeds": seeds, **summary(_BY_NAME[name], found)}
            if "rms" in found[0]:
                result[name] |= {k: result[name]["median"][k] for k in ("rms", "p99", "max", "covered")}
            _say(name, result[name])
    if args.json:
        print(json.dumps(result))
    return 0


def _one(what: tuple[str, int]) -> Figures:
    return run(_BY_NAME[what[0]], what[1])


def _say(name: str, card: dict[str, Any]) -> None:
    print(f"{name} (seeds {card['seeds'][0]}-{card['seeds'][-1]}): median / worst", flush=True)
    for figure, median in card["median"].items():
        limit = card["limits"].get(figure, card["limits"].get(f"least_{figure}"))
        told = "" if limit is None else f"   limit {limit:g}"
        print(f"  {figure:18s} {median:12.4g} / {card['worst'][figure]:.4g}{told}", flush=True)
    missed = [k for k, ok in card["met"].items() if not ok]
    print(f"  {'not met: ' + ', '.join(missed) if missed else 'all limits met'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
