"""Crashes placed in the archive: at every read, commit, insert and disk operation in turn."""

from __future__ import annotations

from collections import Counter

from tests.chaos.placements import PlacementReport
from tests.fixtures.archive_world import World
from tests.property.test_archive_crash import CASES, CONFIG, Log, die_at, expected, live, make_log, new_world


def placements(seed: int, n: int) -> PlacementReport:
    """About `n` of them: every step of runs with the engine there, away for a while and unreliable."""
    report = PlacementReport()
    round_ = 0
    while report.placed < n:
        for case, (trouble, config) in CASES.items():
            log = make_log(40 if config is CONFIG else 18, seed=seed + round_)
            whole = new_world(log, trouble, seed)
            live(whole, config)
            for at in range(1, whole.fate.steps + 1):
                world = new_world(log, trouble, seed)
                report.placed += die_at(world, at, config)
                live(world, config)
                _count(world, log, report, f"{case}, log {seed + round_}, step {at}")
                if report.placed >= n:
                    return report
        round_ += 1
    return report


def _count(world: World, log: Log, report: PlacementReport, where: str) -> None:
    """Hold the tables against what was on the bus."""
    found: dict[str, Counter[object]] = {table: Counter() for table in expected(log)}
    for table, rows in world.engine.tables.items():
        found[table].update(row[0] for row in rows)
    lost = doubled = 0
    for table, wanted in expected(log).items():
        lost += (wanted - found[table]).total()
        doubled += (found[table] - wanted).total()
    report.lost += lost
    report.doubled += doubled
    if lost or doubled or not world.bus.all_committed():
        report.failures.append(f"{where}: {lost} lost, {doubled} doubled")
