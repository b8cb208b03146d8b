"""``python -m tests.fuzz TARGET --seed N --count M``: run a target, print what was found; exit 1 where anything was.

TARGET is ``stages`` (all stages in memory), ``decoders``, a piece of their names, or ``all``. A run is repeated by its
seed and count.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from tests.fuzz import decoders, stages, target
from tests.fuzz.finds import Finds
from tests.fuzz.values import EVERYBODY, Draw


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", nargs="?", default="all")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--count", type=int, default=20_000, help="inputs of each target")
    parser.add_argument("--timed", action="store_true", help="an input that takes long is a find")
    parser.add_argument("--save", type=Path, help="write a file per find here")
    args = parser.parse_args()
    seed = random.SystemRandom().randrange(10**9) if args.seed is None else args.seed
    print(f"seed {seed}", flush=True)
    finds = Finds()
    if args.target in ("stages", "all"):
        began_s = time.monotonic()
        run = stages.run(seed, args.count, finds)
        print(f"stages: {args.count} messages, {time.monotonic() - began_s:.0f} s", flush=True)
        for line in run.lines():
            print(line, flush=True)
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
