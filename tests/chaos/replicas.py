"""The same story before 1, 2 and 4 replicas of every stage, which come and go meanwhile: the findings are the same.

``python -m tests.chaos.replicas [--seed N] [--counts 1,2,4] [--seconds N]``. What is compared is what was found
of the things that were broken (kind and subject) and how it went on (open, update, resolved; any number of updates
counts as one), with the runs' own books. The last line on stdout is one JSON object; the exit status is 0 when all runs
agree and balance, 1 when not, and 2 when they could not be judged because the machine told the story late.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.chaos import plan, report, story
from tests.chaos.__main__ import PREFIX, say, sweep
from tests.chaos.house import House
from tests.chaos.judgements import Said
from tests.chaos.placements import PlacementReport
from tests.chaos.process import hurry
from tests.chaos.run import SETTINGS, Outcome, Running
from tests.chaos.story import Clock

EVERY_S = 9.0
"""Between two changes of a group's members."""
NAMES = "abcdefgh"
ON_TIME_S = 1.0
"""A story that is told later than this looks like clocks that step and agents that fall silent."""


SHORT: Final = (
    "replicas", "rebalances", "produced", "archived", "lost", "doubled", "balanced", "findings_seen", "seconds",
    "told_late_s",
)  # fmt: skip
"""What is said of each run in the last line."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.replicas", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--counts", default="1,2,4", help="replicas of every stage, one run each (default 1,2,4)")
    parser.add_argument("--seconds", type=float, default=150.0, help="of the story (default 150)")
    args = parser.parse_args()
    base = sweep(Path(tempfile.gettempdir()))
    told: dict[int, dict[str, list[str]]] = {}
    results: list[dict[str, Any]] = []
    for count in map(int, args.counts.split(",")):
        say(f"--- {count} of every stage")
        folder = base / f"{PREFIX}{os.getpid()}" / f"{count}"
        folder.parent.mkdir(exist_ok=True)
        began_s = time.monotonic()
        outcome = asyncio.run(_run(folder, args.seed, args.seconds, count))
        report.tell(outcome, PlacementReport(), say)
        told[count] = lives(outcome.said, {k.target for k in outcome.known})
        results.append(
            {"replicas": count, "rebalances": len(outcome.done), "told_late_s": round(outcome.late_s, 1)}
            | report.as_json(outcome, PlacementReport(), args.seed, time.monotonic() - began_s)
        )
    first = told[next(iter(told))]
    differences = [line for count, other in told.items() for line in differ(first, other, count)]
    for subject, life in sorted(first.items()):
        say(f"{subject}: {'; '.join(life)}")
    for line in differences:
        say(f"AMISS {line}")
    late_s = max(r["told_late_s"] for r in results)
    same = not differences and all(r["balanced"] for r in results)
    parent = base / f"{PREFIX}{os.getpid()}"
    if same:
        shutil.rmtree(parent, ignore_errors=True)
    else:
        kept = parent.rename(base / f"{PREFIX}kept-replicas-{args.seed}-{os.getpid()}")
        say(f"everything is kept in {kept}")
    if not same and late_s > ON_TIME_S:
        say(f"the story was told up to {late_s} s late: this machine is too busy to judge by")
    runs = [{key: r[key] for key in SHORT} for r in results]
    print(json.dumps({"same": same, "seed": args.seed, "findings": first, "differences": differences, "runs": runs}))
    return 0 if same else 2 if late_s > ON_TIME_S else 1


def lives(said: Sequence[Said], targets: Collection[str]) -> dict[str, list[str]]:
    """Of each finding about something that was broken, by kind and subject: how it went; many updates are one."""
    found: dict[str, list[list[str]]] = {}
    for one in sorted(said, key=lambda s: s.data["seen_at_ns"]):
        data = one.data
        if data["subject"]["id"] not in targets:
            continue
        several = found.setdefault(f"{data['kind']} {data['subject']['id']}", [])
        if data["status"] == "open" or not several:
            several.append([])
        if several[-1][-1:] != [data["status"]] or data["status"] != "update":
            several[-1].append(data["status"])
    return {subject: [" ".join(life) for life in several] for subject, several in found.items()}


def differ(first: dict[str, list[str]], other: dict[str, list[str]], count: int) -> list[str]:
    """Where another run says something else."""
    return [
        f"{subject}: {first.get(subject, 'not found')} with one, {other.get(subject, 'not found')} with {count}"
        for subject in sorted(first.keys() | other.keys())
        if first.get(subject) != other.get(subject)
    ]


async def _run(folder: Path, seed: int, seconds: float, count: int) -> Outcome:
    hurry()
    size = replace(plan.SHORT, story_s=seconds)
    script = story.script(seed, 32.0, seconds - 24.0)
    members = [(stage, NAMES[i]) for stage, _ in plan.STAGES for i in range(count)]
    house = House(folder, say, members, options=SETTINGS)
    done: list[str] = []

    async def change(clock: Clock) -> None:
        """Members leave and come back, one after another, while the story is told."""
        rng = np.random.default_rng([seed, count])
        at_s = 20.0
        while count > 1 and (at_s := at_s + EVERY_S) < seconds - 20.0:
            while clock.now_s < at_s:  # noqa: ASYNC110 - the story may be told late
                await asyncio.sleep(0.1)
            child = house.stages[str(rng.choice(list(house.stages)))]
            await child.stop()
            say(f"{clock.now_s:6.1f} s  {child.name} has left")
            await asyncio.sleep(EVERY_S / 3)
            await child.start()
            child.keep()
            done.append(child.name)

    try:
        await house.up()
        outcome = await Running(seed, size, house, say, script.known, script.faults, [], change).run()
    finally:
        await asyncio.shield(house.down())
    outcome.done += done
    return outcome


if __name__ == "__main__":
    sys.exit(main())
