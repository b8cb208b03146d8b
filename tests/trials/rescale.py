"""Stages grow from two processes to six and shrink to three under load: every row once, and how soon the lag is back.

The house of `tests.chaos` on a real broker, with two processes each of sync-edge (which shares its partitions out),
detect and archive (of which one works and the others stand by). Those that leave are the first ones, which had the
work. One such story, whatever ``--trials`` says.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sdfstream.records.topics import PROBE
from tests.bench.harness import Result, SkippedError
from tests.chaos import onbus, plan, report, story
from tests.chaos.house import House
from tests.chaos.placements import PlacementReport
from tests.chaos.process import hurry
from tests.chaos.run import SETTINGS, Outcome, Running
from tests.chaos.story import Clock
from tests.fixtures.kafka_broker import BrokerUnavailableError

RESCALED: Final = ("sync-edge", "detect", "archive")
FIRST, MOST, LAST = "ab", "abcdef", "def"
"""Processes of each, by name."""
GROWS_S, SHRINKS_S, STORY_S = 60.0, 110.0, 170.0
NORMAL_S: Final = 30.0
"""Before the first change: the most that a stage was behind then is normal."""
STAYS: Final = 3
"""Looks, one a second, for which the lag has to be normal again."""
GOAL_S: Final = 30.0


@dataclass(slots=True)
class Lags:
    """How far the rescaled stages are behind the probes, looked at once a second."""

    at_s: list[float] = field(default_factory=list)
    """Monotonic clock."""
    behind: dict[str, list[int]] = field(default_factory=lambda: {stage: [] for stage in RESCALED})
    """Records that the stage's group has not committed, at each look."""
    changed_s: dict[str, float] = field(default_factory=dict)
    """When each change began."""

    async def watch(self, servers: str) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(1.0)
            at_s = time.monotonic()
            ends = await asyncio.to_thread(onbus.ends, servers, [PROBE.name])
            left = [await asyncio.to_thread(onbus.behind, servers, stage, ends) for stage in RESCALED]
            self.at_s.append(at_s)
            for stage, records in zip(RESCALED, left, strict=True):
                self.behind[stage].append(records)

    def normal(self, stage: str) -> int:
        """The most records that it was behind before anything changed."""
        first_s = min(self.changed_s.values())
        pairs = zip(self.at_s, self.behind[stage], strict=True)
        return max((n for at_s, n in pairs if first_s - NORMAL_S <= at_s < first_s), default=0)

    def back_s(self, stage: str, change: str) -> tuple[float, int]:
        """Seconds from a change until the lag is normal again and stays so, −1: never; and the most until then."""
        began_s, normal, most, since = self.changed_s[change], self.normal(stage), 0, 0
        for at_s, records in zip(self.at_s, self.behind[stage], strict=True):
            if at_s < began_s:
                continue
            most, since = max(most, records), since + 1 if records <= normal else 0
            if since == STAYS:
                return max(0.0, round(at_s - (STAYS - 1) - began_s, 1)), most
        return -1.0, most


async def measure(result: Result, trials: int, seed: int) -> None:
    hurry()
    size = replace(plan.SHORT, story_s=STORY_S)
    script = story.script(seed, 28.0, STORY_S - 24.0)
    folder = Path(tempfile.mkdtemp(prefix="sdf-rescale-"))
    members = [(stage, name) for stage, _ in plan.STAGES for name in (FIRST if stage in RESCALED else "a")]
    house, lags = House(folder / "house", result.progress, members, options=SETTINGS), Lags()  # type: ignore[attr-defined]
    house.small_disks = False

    async def change(clock: Clock) -> None:
        watching = asyncio.create_task(lags.watch(house.broker.address))
        try:
            await _until(clock, GROWS_S)
            await _grow(house, members, lags)
            await _until(clock, SHRINKS_S)
            await _shrink(house, lags)
            await _until(clock, STORY_S - 1.0)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    try:
        await house.up()
        running = Running(seed, size, house, house.say, script.known, script.faults, [], change)
        outcome = await running.run()
    except BrokerUnavailableError as missing:
        raise SkippedError(str(missing)) from missing
    finally:
        await house.down()
        shutil.rmtree(folder, ignore_errors=True)
    _say(result, outcome, lags, seed)


async def _until(clock: Clock, at_s: float) -> None:
    while clock.now_s < at_s:  # noqa: ASYNC110 - the story may be told late
        await asyncio.sleep(0.1)


async def _grow(house: House, members: list[tuple[str, str]], lags: Lags) -> None:
    lags.changed_s["2 to 6"] = time.monotonic()
    more = [(stage, name) for stage in RESCALED for name in MOST if name not in FIRST]
    members += more
    await asyncio.gather(*(house.add(stage, name) for stage, name in more))
    house.say(f"{len(FIRST)} of each grow to {len(MOST)}")


async def _shrink(house: House, lags: Lags) -> None:
    lags.changed_s["6 to 3"] = time.monotonic()
    gone = [f"{stage}-{name}" for stage in RESCALED for name in MOST if name not in LAST]
    house.say(f"{len(MOST)} of each shrink to {len(LAST)}: {', '.join(gone)} leave")
    await asyncio.gather(*(house.stages[name].stop() for name in gone))


def _say(result: Result, outcome: Outcome, lags: Lags, seed: int) -> None:
    told = report.as_json(outcome, PlacementReport(), seed, 0.0)
    result.say(
        f"{told['produced']:,} rows made, {told['archived']:,} archived, {told['lost']} lost, "
        f"{told['doubled']} doubled, {told['shed']} shed; faults found {told['findings_seen']} of "
        f"{told['findings_expected']}, {told['findings_doubled']} findings doubled; "
        f"the story was {outcome.late_s:.1f} s late at worst",
        **{key: told[key] for key in _BOOKS},
        seed=seed,
    )
    for name in lags.changed_s:
        _say_change(result, lags, name, [(stage, *lags.back_s(stage, name)) for stage in RESCALED])
    for line in told["amiss"]:
        result.say(f"amiss: {line}")


_BOOKS: Final = (
    "produced", "archived", "lost", "doubled", "shed", "findings_expected", "findings_seen", "findings_doubled",
    "balanced", "ended_by_themselves",
)  # fmt: skip


def _say_change(result: Result, lags: Lags, name: str, found: Sequence[tuple[str, float, int]]) -> None:
    met = all(0 <= back_s <= GOAL_S for _, back_s, _ in found)
    stages = "; ".join(
        f"{stage} {f'after {back_s:.0f} s' if back_s >= 0 else 'never'} "
        f"(normal {lags.normal(stage)}, {most} records at most)"
        for stage, back_s, most in found
    )
    result.say(
        f"{name} of each: lag normal again: {stages}: {'met' if met else 'NOT met'}",
        **{f"{stage} {name}": {"back_s": back_s, "most": most} for stage, back_s, most in found},
    )
