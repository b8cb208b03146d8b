"""The broker is away for ten minutes and agents keep what they measure: every row counted afterwards, once.

The house of `tests.chaos` with one process of each stage, four agents with the shipped buffer (16 MiB of memory,
256 MiB of disk), and a broker that is killed and comes back `AWAY_S` later. One fault before, one afterwards, and one
while the broker is away, whose rows come late: that one is told, not judged. A quarter of an hour: one outage, whatever
``--trials`` says.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from tests.bench.harness import Result, SkippedError
from tests.chaos import plan, report, story
from tests.chaos.house import House
from tests.chaos.placements import PlacementReport
from tests.chaos.plan import Act
from tests.chaos.process import hurry
from tests.chaos.run import SETTINGS, Outcome, Running
from tests.chaos.story import Known
from tests.fixtures.kafka_broker import BrokerUnavailableError
from tests.fixtures.leafspine import Fabric, Fault

AWAY_S: Final = 600.0
BEFORE_S: Final = 50.0
"""Story before the broker goes: clocks converge, one fault is found and over."""
AFTER_S: Final = 100.0
"""Story after it is back."""
QUIET_S: Final = story.LATE_MEMORY_S
"""After an outage news is late, and silence is believed later by design: faults judged begin after it."""


async def measure(result: Result, trials: int, seed: int) -> None:
    hurry()
    faults, judged, late = _faults(seed)
    back_s = BEFORE_S + AWAY_S
    size = replace(plan.SHORT, story_s=back_s + AFTER_S)
    folder = Path(tempfile.mkdtemp(prefix="sdf-outage-"))
    house = House(folder / "house", result.progress, [(stage, "a") for stage, _ in plan.STAGES], options=SETTINGS)
    house.small_disks = False
    try:
        await house.up()
        acts = [Act(BEFORE_S, "away", "broker", AWAY_S)]
        running = Running(seed, size, house, result.progress, judged, faults, acts)
        outcome = await running.run()
    except BrokerUnavailableError as missing:
        raise SkippedError(str(missing)) from missing
    finally:
        await house.down()
        kept = _spilled(folder)
        shutil.rmtree(folder, ignore_errors=True)
    _say(result, outcome, late, seed, kept)


def _faults(seed: int) -> tuple[list[Fault], list[Known], Known]:
    """All faults, those that are judged, and the one of the outage's middle."""
    before = story.script(seed, 28.0, BEFORE_S - 2.0)
    fabric = Fabric(seed, [], story.SHAPE)
    middle_s = BEFORE_S + AWAY_S / 2
    rng = np.random.default_rng([seed, 9])
    fault, late = story.fault_of("link", fabric, rng, middle_s, middle_s + 15.0)
    first_s = BEFORE_S + AWAY_S + QUIET_S
    after = story.script(seed + 1, first_s, first_s + AFTER_S - QUIET_S - 15.0)
    return [*before.faults, fault, *after.faults], [*before.known, *after.known], late


def _spilled(folder: Path) -> int:
    """Bytes that agents still have on disk in the end."""
    return sum(
        p.stat().st_size for p in folder.glob("house/agents/*/spill/**/*") if p.is_file() and p.suffix != ".lock"
    )


def _say(result: Result, outcome: Outcome, late: Known, seed: int, kept: int) -> None:
    books, findings = outcome.books, outcome.findings
    told = report.as_json(outcome, PlacementReport(), seed, 0.0)
    (away,) = outcome.outages
    recovered = dict(outcome.recovered_s).get("broker", -1.0)
    found_late = any(late.target in str(s.data["subject"]["id"]) for s in outcome.said)
    result.say(
        f"broker away for {away['until_s'] - away['from_s']:.0f} s: {books.produced:,} rows made, "
        f"{books.archived_of_agents:,} archived, {books.lost} lost, {books.doubled} doubled, {books.shed} shed, "
        f"{kept} bytes left with agents; archive up with the bus {recovered:.1f} s after it was back; faults found "
        f"{findings.seen}/{findings.expected}, and of the outage's middle {'1' if found_late else '0'}/1; told "
        f"{outcome.late_s:.1f} s late at worst",
        **{key: told[key] for key in ("produced", "archived", "lost", "doubled", "shed", "findings_expected")},
        **{key: told[key] for key in ("findings_seen", "findings_doubled", "balanced", "ended_by_themselves", "amiss")},
        away_s=round(away["until_s"] - away["from_s"], 1),
        recovered_s=recovered,
        late_found=found_late,
        left_bytes=kept,
        seed=seed,
        faults=findings.faults,
    )
    for line in told["amiss"]:
        result.say(f"amiss: {line}")
