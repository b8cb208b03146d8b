"""``make chaos``: everything is killed at random points, and then all is counted.

``python -m tests.chaos [--short | --long] [--seed N] [--json] [--no-placements] [--keep]``. Progress on stderr; the
last line on stdout is one JSON object. The exit status is 0 only when the run balances, 1 when not, 2 when it could
not run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos import plan, report, story
from tests.chaos.house import House
from tests.chaos.placements import LEAST, PlacementReport, placements
from tests.chaos.process import hurry
from tests.chaos.run import SETTINGS, Outcome, Running
from tests.fixtures.kafka_broker import BrokerUnavailableError

PREFIX = "sdf-chaos-"


def say(line: str) -> None:
    """Progress."""
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--short",
        action="store_true",
        help="28 kills in about five minutes (default: 208 in three quarters of an hour)",
    )
    size.add_argument("--long", action="store_true", help="as the default, and ClickHouse is away for ten minutes")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000, help="of everything that is drawn")
    parser.add_argument("--json", action="store_true", help="accepted everywhere; here the last line is always JSON")
    parser.add_argument("--no-placements", action="store_true", help="only the part with processes")
    parser.add_argument(
        "--rows",
        action="store_true",
        help="exit 0 when nothing was lost or doubled, whatever faults were found: for a machine that others starve",
    )
    parser.add_argument("--no-kills", action="store_true", help="the same story in peace")
    parser.add_argument("--keep", action="store_true", help="keep the folder also when all is well")
    args = parser.parse_args()
    began_s = time.monotonic()
    chosen = plan.SHORT if args.short else plan.LONG if args.long else plan.FULL
    folder = sweep(Path(tempfile.gettempdir())) / f"{PREFIX}{os.getpid()}"
    say(f"seed {args.seed}, {chosen.kills} kills in {chosen.story_s:g} s; load {os.getloadavg()[0]:.1f}")
    placed = PlacementReport() if args.no_placements else placements(args.seed, LEAST, say=say)
    try:
        outcome = asyncio.run(_run(folder, args.seed, chosen, in_peace=args.no_kills))
    except (asyncio.CancelledError, KeyboardInterrupt):
        say("stopped by a signal")
        shutil.rmtree(folder, ignore_errors=True)
        return 130
    except (BrokerUnavailableError, RuntimeError, OSError, ExceptionGroup) as why:
        say(f"could not be run: {reasons(why)}")
        if folder.exists():
            report.logs(folder, say)
        return 2
    report.tell(outcome, placed, say)
    said = report.as_json(outcome, placed, args.seed, time.monotonic() - began_s)
    if said["balanced"] and not args.keep:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        report.logs(folder, say)
        (folder / "result.json").write_text(json.dumps(said, indent=1))
        folder.rename(folder.with_name(f"{PREFIX}kept-{args.seed}-{os.getpid()}"))
    print(json.dumps(said, separators=(",", ":")), flush=True)
    return 0 if said["rows_balanced" if args.rows else "balanced"] else 1


async def _run(folder: Path, seed: int, size: plan.Size, *, in_peace: bool) -> Outcome:
    hurry()
    main_task = asyncio.current_task()
    assert main_task is not None
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, main_task.cancel)
    script = story.script(seed, 32.0, size.story_s - 24.0, plan.AGENTS[plan.CUT])
    acts = plan.draw(seed, size, script)
    if in_peace:
        acts = [act for act in acts if act.what == "cut"]
    members = [(stage, member) for stage, several in plan.STAGES for member in several]
    house = House(folder, say, members, options=SETTINGS)
    try:
        await house.up()
        return await Running(seed, size, house, say, script.known, script.faults, acts).run()
    finally:
        await asyncio.shield(house.down())


def reasons(error: BaseException) -> str:
    """What happened, also in a group of tasks."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(reasons(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


def sweep(base: Path) -> Path:
    """Remove folders of runs that were killed themselves; returns `base`."""
    for left in base.glob(f"{PREFIX}*"):
        pid = left.name.removeprefix(PREFIX)
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            with suppress(OSError):
                shutil.rmtree(left)
    return base


if __name__ == "__main__":
    sys.exit(main())
