"""Exactly once over the real engine: killed at steps, killed with -9 in mid-insert, and its server gone and back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sdfstream.archive import tables
from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.http.server_io import SqlFront
from sdfstream.archive.run_io import Environment
from sdfstream.archive.work_io import ArchiveWork, open_engine
from sdfstream.records.position import PARTITION_BITS
from sdfstream.records.topics import ARCHIVED, PROBE
from tests.fixtures.archive import EPOCH_NS, bulk, message
from tests.fixtures.archive_child import ROWS, AllCommitted, TimedTask, child_log
from tests.fixtures.archive_world import Crash, Fate, Inline, World
from tests.property.test_archive_crash import CONFIG, Until, away_for_a_while, expected, make_log

ROOT = Path(__file__).parents[2]


def test_every_window_covers_what_may_be_inserted_again(archive_folder: Path) -> None:
    """One insert per topic at most, each with one part per hour; into `reject` all topics together."""
    with open_engine(ArchiveConfig(str(archive_folder), "run")) as engine:
        windows = dict(
            engine.rows(
                "SELECT name, toUInt32OrZero(extract(engine_full, 'deduplication_window = (\\\\d+)'))"
                " FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
            )
        )
        views = engine.rows(
            "SELECT extract(create_table_query, ' TO (?:\\\\w+\\\\.)?(\\\\w+)') FROM system.tables"
            " WHERE database = currentDatabase() AND engine = 'MaterializedView'"
        )
    hours = BatchLimits().most_hours
    assert views
    for table in {*map(tables.table_of, ARCHIVED), tables.REJECT_TABLE, *(name for (name,) in views)}:
        topics = len(ARCHIVED) if table == tables.REJECT_TABLE else 1
        assert windows[table] > topics * (hours + 1), table


class Stepped:
    """A real engine with a step before and after each insert, and troubles."""

    def __init__(self, engine: Engine, world: World) -> None:
        self.engine = engine
        self.world = world
        self.trouble = away_for_a_while(world)

    def insert(self, table, rows, token) -> None:
        world, world.engine.trouble = self.world, self.trouble
        asked = self.trouble(table)
        world.fate.step("insert: before")
        if asked != "away":
            self.engine.insert(table, rows, token)
        world.engine.trouble = lambda table: asked
        world.engine.insert(table, rows.slice(0, 0), token)
        world.fate.step("insert: after")

    def command(self, sql: str) -> None:
        self.world.engine.trouble = self.trouble
        self.world.engine.command(sql)


def test_killed_at_steps_over_the_real_engine(target: str, tmp_path) -> None:
    log = make_log(16, seed=3)
    engine = open_engine(ArchiveConfig(target, "run"))

    def live(world: World, bus_id: str, store: Stepped) -> None:
        config = replace(CONFIG, bus_id=bus_id, pending_bytes=4096)
        work = ArchiveWork(config, store, disk=world.disk, environment=Environment(world.clock, world.pause, Inline()))
        asyncio.run(work.run(world.bus.task(), Until(world, world.clock_ns)))

    world = World(log, 1)
    live(world, "whole", Stepped(engine, world))
    placements = np.unique(np.linspace(1, world.fate.steps, 14).astype(int))
    for at in placements:
        world, bus_id = World(log, 1), f"killed at {at}"
        store = Stepped(engine, world)
        world.fate = Fate(int(at))
        with suppress(Crash):
            live(world, bus_id, store)
        world.crash()
        live(world, bus_id, store)
        for table, rows in expected(log).items():
            sql = f"SELECT bus_seq, count() FROM {table} WHERE bus_id = {{b:String}} GROUP BY bus_seq"
            assert dict(engine.rows(sql, {"b": bus_id})) == rows, (at, table)
    engine.close()


ROLL_UP = """CREATE TABLE roll_up (bus_seq UInt64, n UInt64) ENGINE = SummingMergeTree ORDER BY bus_seq
SETTINGS non_replicated_deduplication_window = 1000"""
ROLL_UP_VIEW = (
    "CREATE MATERIALIZED VIEW roll_up_view TO roll_up AS SELECT bus_seq, count() AS n FROM raw_probe GROUP BY bus_seq"
)


def test_kill_9_in_mid_insert_and_the_next_process_goes_on(tmp_path: Path, archive_folder: Path) -> None:
    """Real processes, a real engine on disk with a roll-up view; the bus is a file. Afterwards both tables agree."""
    target = str(archive_folder)
    with open_engine(ArchiveConfig(target, "bus-1")) as engine:
        engine.command(ROLL_UP)
        engine.command(ROLL_UP_VIEW)
    rng = np.random.default_rng(20261121)
    program = [sys.executable, "-m", "tests.fixtures.archive_child", target, str(tmp_path)]
    kills = 0
    for attempt in range(12):
        child = subprocess.Popen(program, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert child.stdout is not None
        assert child.stdout.readline() == "under way\n"
        if attempt < 5:
            time.sleep(rng.uniform(0, 0.35))
            child.send_signal(signal.SIGKILL)
        rest = child.stdout.read()
        child.wait(timeout=60)
        child.stdout.close()
        if rest == "done\n":
            break
        kills += 1
    assert kills >= 2
    assert rest == "done\n"
    wanted = {m.bus_seq: ROWS for part, entries in child_log().items() if part[0] == PROBE.name for m in entries if m}
    with Engine.open(target) as engine:
        assert dict(engine.rows("SELECT bus_seq, count() FROM raw_probe GROUP BY bus_seq")) == wanted
        assert dict(engine.rows("SELECT bus_seq, sum(n) FROM roll_up GROUP BY bus_seq")) == wanted
        assert engine.rows("SELECT count(), uniqExact(bus_seq) FROM state_clock") == [(60 * 20, 60)]


@pytest.mark.parametrize("pending", [512 << 20, 600_000], ids=["in memory", "to the spill"])
def test_a_server_that_is_stopped_for_a_while(tmp_path: Path, archive_folder: Path, pending: int) -> None:
    """Rows keep coming while nobody answers; when the server is back all of them go in, once, within seconds."""
    folder = str(archive_folder)
    front = SqlFront.start(folder, token="t")
    config = ArchiveConfig(
        f"http://x:t@127.0.0.1:{front.port}/sdf",
        "bus-1",
        BatchLimits(age_ms=100),
        pending_bytes=pending,
        spill_dir=str(tmp_path / "spill"),
        kept_dir=str(tmp_path / "kept"),
    )
    messages = 200
    log = {(PROBE.name, p): [_probe(p, i) for i in range(messages)] for p in range(2)}
    world = World(log, 1)
    work = ArchiveWork.open(config)
    world.bus.epoch += 1
    begin_s = time.monotonic()
    back_s: list[float] = []
    fronts = [front]

    def stop_and_start() -> None:
        time.sleep(0.7)
        front.close()
        time.sleep(2.5)
        fronts.append(SqlFront.start(folder, token="t", port=front.port))
        back_s.append(time.monotonic() - begin_s)

    class Growing(TimedTask):
        async def read(self, max_messages: int = 1000, timeout_s: float = 0.1):
            there = min(messages, int((time.monotonic() - begin_s) * 60))
            self.bus.published = dict.fromkeys(log, there)
            return await super().read(max_messages, timeout_s)

    hand = threading.Thread(target=stop_and_start)
    hand.start()
    asyncio.run(asyncio.wait_for(work.run(Growing(world.bus), AllCommitted(world.bus)), 60))
    took_s = time.monotonic() - begin_s
    hand.join()
    assert work.counters.get("retries", "unreachable") > 0
    assert work.counters.total("kept") == work.counters.total("lost") == 0
    assert (work.counters.total("spilled") > 0) == (pending < 1 << 20)
    assert work.counters.total("spilled") == work.counters.total("caught-up")
    assert work.figures()["spill_bytes"] == 0
    work.close()
    with Engine.open(config.target) as engine:
        found = dict(engine.rows("SELECT bus_seq, count() FROM raw_probe GROUP BY bus_seq"))
    fronts[-1].close()
    assert found == Counter({m.bus_seq: 500 for entries in log.values() for m in entries})
    print(f"server back after {back_s[0]:.1f} s, everything in after {took_s:.1f} s")


def _probe(partition: int, number: int):
    seq = partition << PARTITION_BITS | number
    rows = bulk(PROBE, 500, np.random.default_rng([partition, number]))
    return message(PROBE, rows, seq, batch_seq=number, key=str(partition), bus_at_ns=EPOCH_NS + number)
