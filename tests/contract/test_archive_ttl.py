"""What a time to live takes, and what it may not touch."""

from __future__ import annotations

import time

import numpy as np
import pytest

from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.retention import Retention
from sdfstream.archive.writer_io import Archive
from sdfstream.errors import ArchiveError
from sdfstream.records.message import Message
from sdfstream.records.topics import PROBE
from sdfstream.records.units import NS_PER_S
from tests.fixtures.archive import bulk, message

HOUR_NS = 3600 * NS_PER_S
YEAR_NS = 365 * 24 * HOUR_NS


def _now_ns() -> int:
    return time.time_ns()


def _probe(at_ns: int, seq: int) -> Message:
    return message(PROBE, bulk(PROBE, 10, np.random.default_rng(seq)), seq, bus_at_ns=at_ns)


def _settle(engine: Engine) -> int:
    """Rows of raw_probe once everything that may go is gone."""
    engine.command("ALTER TABLE raw_probe MODIFY SETTING merge_with_ttl_timeout = 0")
    engine.command("OPTIMIZE TABLE raw_probe FINAL")
    return int(engine.rows("SELECT count() FROM raw_probe")[0][0])


def test_old_rows_of_a_live_archive_go_and_fresh_ones_stay(tmp_path) -> None:
    target = str(tmp_path / "archive")
    config = ArchiveConfig(target, "live", limits=BatchLimits(rows=1), retention=Retention())
    archive = Archive.open(config)
    archive.add_blocking([_probe(_now_ns() - 3 * HOUR_NS, 0), _probe(_now_ns(), 1)])
    archive.close_blocking()
    with Engine.open(target) as engine:
        assert _settle(engine) == 10


def test_a_replay_of_a_year_ago_loses_nothing_whatever_comes_after_it(tmp_path) -> None:
    target = str(tmp_path / "archive")
    replay = ArchiveConfig(target, "replay", replay=True, retention=Retention())
    archive = Archive.open(replay)
    archive.add_blocking([_probe(_now_ns() - YEAR_NS, i) for i in range(5)])
    archive.close_blocking()
    live = Archive.open(ArchiveConfig(target, "live", retention=Retention()))
    live.add_blocking([_probe(_now_ns(), 9)])
    live.close_blocking()
    with Engine.open(target) as engine:
        assert _settle(engine) == 60
        assert engine.rows("SELECT count() FROM system.tables WHERE engine_full LIKE '% TTL %'") == [(0,)]


def test_a_replay_into_an_archive_whose_rows_age_is_refused(tmp_path) -> None:
    target = str(tmp_path / "archive")
    live = Archive.open(ArchiveConfig(target, "live", retention=Retention()))
    live.close_blocking()
    Archive.open(ArchiveConfig(target, "replay", replay=True)).close_blocking()  # it was empty: no row ages now
    other = str(tmp_path / "other")
    live = Archive.open(ArchiveConfig(other, "live", retention=Retention()))
    live.add_blocking([_probe(_now_ns(), 1)])
    live.close_blocking()
    with pytest.raises(ArchiveError, match="replay into a folder or database of its own"):
        Archive.open(ArchiveConfig(other, "replay", replay=True))
