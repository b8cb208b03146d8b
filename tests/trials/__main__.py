"""``make trials``: each promise of the loop as repeated trials on real packets; median and worst, with the load.

``python -m tests.trials [--only NAME]… [--trials N] [--seed N] [--json]``. The exit status is 0 unless a trial could
not be run; a goal that is not met is said, and is no failure.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import os
import platform
import sys
import time
import traceback
from dataclasses import asdict, dataclass
from typing import Any

import uvloop

from tests.bench.harness import Result, SkippedError

NAMES = ("failover", "faults", "collision", "iperf", "lapses", "blind", "forged", "clock", "zombies")
APART = ("outage", "rescale")
"""By name only: an outage takes a quarter of an hour, a rescale five minutes."""


@dataclass
class Live(Result):
    """A result that tells what it sees as it goes."""

    record: str = ""
    """Folder for a recording of the trial's bus and its truth, where the trial makes one."""

    def progress(self, line: str) -> None:
        print(f"    {line}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials", description=__doc__)
    parser.add_argument("--only", action="append", choices=(*NAMES, *APART), help="this one; repeatable")
    parser.add_argument("--trials", type=int, default=20, help="repetitions of each (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the choices of links and ports (default 1)")
    parser.add_argument(
        "--record",
        default="",
        metavar="DIR",
        help="keep the bus and the truth there (faults, failover, collision, iperf)",
    )
    parser.add_argument("--json", action="store_true", help="everything as one JSON object in the last line")
    args = parser.parse_args()
    print(f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}; load {_load()}")
    results: list[dict[str, Any]] = []
    failed = False
    for name in args.only or NAMES:
        print(f"\n{name}", flush=True)
        began_s, result = time.monotonic(), Live(name, record=args.record)
        module = importlib.import_module(f"tests.trials.{name}")
        try:
            uvloop.run(module.measure(result, args.trials, args.seed))
        except SkippedError as why:
            result.skipped = str(why)
            print(f"  skipped: {why}")
        except Exception as error:  # the other trials still run
            failed = True
            traceback.print_exc()
            result.say(f"could not be run: {type(error).__name__}: {error}")
        for line in result.lines:
            print(f"  {line}")
        result.load = list(os.getloadavg())
        print(f"  {time.monotonic() - began_s:.0f} s, load {_load()}", flush=True)
        results.append(asdict(result))
    if args.json:
        print(json.dumps({"results": results}, separators=(",", ":")))
    return int(failed)


def _load() -> str:
    return ", ".join(f"{one:.1f}" for one in os.getloadavg())


if __name__ == "__main__":
    asyncio.set_event_loop_policy(None)
    sys.exit(main())
