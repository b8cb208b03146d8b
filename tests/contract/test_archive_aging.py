"""What goes by age, and what may not be touched."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrate, migrations
from sdfstream.archive.retention import Retention
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.upkeep.passes_io import Upkeep
from sdfstream.archive.writer_io import Archive
from sdfstream.errors import ArchiveError
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK, OWD, PROBE
from sdfstream.records.units import NS_PER_S
from tests.fixtures.archive import bulk, message
from tests.fixtures.archive_windows import windows

HOUR_NS = 3600 * NS_PER_S
YEAR_NS = 365 * 24 * HOUR_NS


def _now_ns() -> int:
    return time.time_ns()


def _probe(at_ns: int, seq: int) -> Message:
    return message(PROBE, bulk(PROBE, 10, np.random.default_rng(seq)), seq, bus_at_ns=at_ns)


def _upkeep(engine: Engine) -> Upkeep:
    upkeep = Upkeep(engine, Retention())
    upkeep.run()
    return upkeep


def _count(engine: Engine, table: str = "raw_probe") -> int:
    return int(engine.rows(f"SELECT count() FROM {table}")[0][0])


def _live(target: str, messages: list[Message]) -> None:
    archive = Archive.open(ArchiveConfig(target, "live", limits=BatchLimits(rows=1), retention=Retention()))
    archive.add_blocking(messages)
    archive.close_blocking()


def _minutes(start_ns: int, minutes: float) -> list[Message]:
    """Windows of two paths every 100 ms, some without a delay, and clocks, from `start_ns` on."""
    out = []
    for number, at_ns in enumerate(range(start_ns, start_ns + round(minutes * 60 * NS_PER_S), 10 * NS_PER_S)):
        rng = np.random.default_rng(number)
        batch = windows(10, rng, start_ns=at_ns, paths=2)
        out.append(message(OWD, batch, number, bus_at_ns=at_ns + 10 * NS_PER_S))
        out.append(message(CLOCK, bulk(CLOCK, 20, rng), number, bus_at_ns=at_ns + 10 * NS_PER_S))
    return out


HISTORY = (
    "SELECT * FROM v_path_1m ORDER BY ALL",
    "SELECT * FROM v_path_1s ORDER BY ALL",
    "SELECT * EXCEPT (statuses, offset_avg_ns, skew_avg_ppb), arraySort(statuses) FROM v_clock_1m ORDER BY ALL",
)


def test_old_rows_of_a_live_archive_go_and_fresh_ones_stay(archive_folder: Path) -> None:
    target = str(archive_folder)
    _live(target, [_probe(_now_ns() - 3 * HOUR_NS, 0), _probe(_now_ns(), 1)])
    with Engine.open(target) as engine:
        upkeep = _upkeep(engine)
        assert _count(engine) == 10
        assert upkeep.counters.get("expired", "raw_probe") == 10
        assert engine.rows("SELECT name, rows FROM dropped") == [("raw_probe", 10)]
        assert _upkeep(engine).counters.get("expired", "raw_probe") == 0


def test_an_archive_that_nobody_writes_to_stays_as_it_is(archive_folder: Path) -> None:
    """A run of yesterday, opened today."""
    target = str(archive_folder)
    yesterday = _now_ns() - 24 * HOUR_NS
    _live(target, [_probe(yesterday, 0), *_minutes(yesterday, 2.5)])
    with Engine.open(target) as engine:
        before = [engine.rows(sql) for sql in HISTORY]
        assert all(before)
        _upkeep(engine)
        engine.command("OPTIMIZE TABLE raw_probe FINAL")
        assert _count(engine) == 10
        assert [engine.rows(sql) for sql in HISTORY] == before


def test_minutes_of_a_run_stay_when_its_rows_go_at_the_next_one(archive_folder: Path) -> None:
    """The run ended before its minutes were finished, the last of them not even over."""
    target = str(archive_folder)
    yesterday = _now_ns() - 24 * HOUR_NS
    run = _minutes(yesterday - yesterday % HOUR_NS + HOUR_NS - 90 * NS_PER_S, 3.2)  # across the hour, so two partitions
    _live(target, run)
    with Engine.open(target) as engine:
        before = [engine.rows(sql) for sql in HISTORY]
    _live(target, [_probe(_now_ns(), 5)])
    with Engine.open(target) as engine:
        _upkeep(engine)
        assert (_count(engine, "derived_owd"), _count(engine, "state_clock")) == (0, 0)
        after = [engine.rows(sql) for sql in HISTORY]
        assert [len(rows) for rows in after] == [len(rows) for rows in before]
        assert after == before


def test_hours_are_finished_before_their_seconds_go(archive_folder: Path) -> None:
    target = str(archive_folder)
    long_ago = _now_ns() - 30 * 24 * HOUR_NS
    _live(target, _minutes(long_ago - long_ago % HOUR_NS - 60 * NS_PER_S, 2))
    with Engine.open(target) as engine:
        counts = engine.rows("SELECT sum(n), sum(lost) FROM owd_1s")
        _live(target, [_probe(_now_ns(), 5)])
        _upkeep(engine)
        assert _count(engine, "owd_1s") == 0
        assert engine.rows("SELECT sum(n), sum(lost) FROM owd_1h FINAL") == counts


def test_rows_that_come_when_others_of_their_minute_are_gone_do_not_replace_it(archive_folder: Path) -> None:
    target = str(archive_folder)
    old_ns = _now_ns() - 5 * HOUR_NS
    _live(target, _minutes(old_ns, 2))
    _live(target, [message(OWD, windows(1, np.random.default_rng(0), start_ns=_now_ns()), 90, bus_at_ns=_now_ns())])
    with Engine.open(target) as engine:
        before = engine.rows(HISTORY[0])
        upkeep = _upkeep(engine)
        late = windows(1, np.random.default_rng(1), start_ns=old_ns)
        engine.insert("derived_owd", bulk_rows(OWD, [message(OWD, late, bus_at_ns=_now_ns())], "t").table, "late")
        upkeep.run()
        assert upkeep.counters.get("too-late", "owd_1m") > 0
        _upkeep(engine)
        assert engine.rows(HISTORY[0])[: len(before) - 6] == before[:-6]


def test_a_bus_clock_that_jumps_ahead_empties_no_archive(archive_folder: Path) -> None:
    target = str(archive_folder)
    _live(target, [_probe(_now_ns(), 0), _probe(_now_ns() + YEAR_NS, 1)])
    with Engine.open(target) as engine:
        _upkeep(engine)
        assert _count(engine) == 20


def test_an_archive_with_the_time_to_live_of_an_older_version_keeps_it_as_retention(tmp_path: Path) -> None:
    with Engine.open(str(tmp_path / "archive"), create=True) as engine:
        migrate(engine, migrations()[:12])
        engine.command("ALTER TABLE raw_probe MODIFY TTL toDateTime(bus_at) + toIntervalSecond(7200)")
        migrate(engine)
        assert engine.rows("SELECT name, seconds FROM retention") == [("raw_probe", 7200)]
        assert engine.rows("SELECT count() FROM system.tables WHERE engine_full LIKE '% TTL %'") == [(0,)]
        assert engine.rows("SELECT name, until_at > now() - 60 FROM dropped") == [("raw_probe", 1)]


def test_a_replay_of_a_year_ago_loses_nothing_whatever_comes_after_it(archive_folder: Path) -> None:
    target = str(archive_folder)
    replay = ArchiveConfig(target, "replay", replay=True, retention=Retention())
    archive = Archive.open(replay)
    archive.add_blocking([_probe(_now_ns() - YEAR_NS, i) for i in range(5)])
    archive.close_blocking()
    live = Archive.open(ArchiveConfig(target, "live", retention=Retention()))
    live.add_blocking([_probe(_now_ns(), 9)])
    live.close_blocking()
    with Engine.open(target) as engine:
        _upkeep(engine)
        assert _count(engine) == 60
        assert engine.rows("SELECT count() FROM retention FINAL WHERE seconds > 0") == [(0,)]


def test_a_replay_into_an_archive_whose_rows_age_is_refused(
    tmp_path: Path, archive_folder: Path, migrated: Path
) -> None:
    target = str(archive_folder)
    live = Archive.open(ArchiveConfig(target, "live", retention=Retention()))
    live.close_blocking()
    Archive.open(ArchiveConfig(target, "replay", replay=True)).close_blocking()  # it was empty: no row ages now
    other = str(shutil.copytree(migrated, tmp_path / "other", symlinks=True))
    live = Archive.open(ArchiveConfig(other, "live", retention=Retention()))
    live.add_blocking([_probe(_now_ns(), 1)])
    live.close_blocking()
    with pytest.raises(ArchiveError, match="replay into a folder or database of its own"):
        Archive.open(ArchiveConfig(other, "replay", replay=True))
