"""``python -m tests.fuzz TARGET --seed N --count M``: run a target, print what was found; exit 1 where anything was.

TARGET is ``stages`` (all stages in memory), ``decoders`` or a piece of their names, ``all`` (both), or ``broker`` (all
of it on a real broker, with agents). A run is repeated by its seed and count.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.fuzz import broker, decoders, stages, target
from tests.fuzz.finds import Finds
from tests.fuzz.values import EVERYBODY, Draw


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", default="all")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=20_000, help="inputs of each target")
    parser.add_argument("--timed", action="store_true", help="an input that takes long is a find")
    parser.add_argument("--clean-seconds", type=float, default=broker.CLEAN_S, help="of the fabric's story (broker)")
    parser.add_argument("--runs", type=int, default=1, help="hostile phases, each with the next seed (broker)")
    parser.add_argument("--results", type=Path, help="add a line per seed here, and judge all lines of it (broker)")
    parser.add_argument("--keep", action="store_true", help="leave logs and data where they are (broker)")
    parser.add_argument("--save", type=Path, help="write a file per find here")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    if args.target == "broker":
        seeds = list(range(seed, seed + args.runs))
        return broker.run(seeds, args.count, args.clean_seconds, keep=args.keep, results=args.results)
    finds = Finds()
    if args.target in ("stages", "all"):
        began_s = time.monotonic()
        run = stages.run(seed, args.count, finds)
        print(f"stages: {args.count} messages, {time.monotonic() - began_s:.0f} s", flush=True)
        for line in run.lines():
            print(line, flush=True)
    if args.target in ("stages", "all"):
        quiet, beside = stages.untouched(seed, 0), stages.untouched(seed, min(args.count, 20_000), finds=finds)
        if quiet != beside:
            finds.note("untouched", f"findings about the others differ: {sorted(set(quiet) ^ set(beside))}")
    if args.target != "stages":
        chosen = [
            one for name, one in decoders.targets().items() if args.target in ("all", "decoders") or args.target in name
        ]
        for one in chosen:
            ran = target.run(
                one, Draw(random.Random(f"{seed} {one.name}"), EVERYBODY), args.count, finds, timed=args.timed
            )
            print(ran.line(), flush=True)
    for line in finds.lines(long=True):
        print(line, flush=True)
    if args.save is not None:
        finds.save(args.save)
    print(f"{len(finds.first)} finds")
    return 1 if finds.first else 0


if __name__ == "__main__":
    sys.exit(main())
