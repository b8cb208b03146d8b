"""An archive of every older version becomes one of today: rows stay to the bit, wherever it was cut short."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sdfstream.archive import migrate_lock_io, packing, tables
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import EngineError
from sdfstream.archive.http.server_io import SqlFront
from sdfstream.archive.migrate_io import migrate, migrations
from sdfstream.archive.migration import guard
from sdfstream.archive.rows import bulk_rows, cast_columns
from sdfstream.errors import ArchiveError
from sdfstream.records.topics import CLOCK, OWD, PROBE
from tests.fixtures.archive import bulk, message
from tests.fixtures.engines import TOKEN

NEWEST = len(migrations())
ROOT = Path(__file__).parents[2]


def _as_then(rows: pa.Table, batch: pa.RecordBatch) -> pa.Table:
    """Rows of raw_probe as they were inserted before migration 0007."""
    t1 = batch.column("t1_ns")
    kept = {name: rows.column(name) for name in rows.column_names if name not in (*packing.PROBE_COLUMNS, "seq_rev")}
    kept |= {"t1": t1.cast(tables.INSTANT), "tx_host_ns": batch["tx_host_ns"], "rx_host_ns": batch["rx_host_ns"]}
    return pa.table(kept | {f"t{i}1_ns": pc.subtract(batch[f"t{i}_ns"], t1) for i in (2, 3, 4)})


def _fill(engine: Engine, version: int, seed: int = 1) -> dict[str, pa.RecordBatch]:
    """Rows of three topics, inserted as an sdfstream of that time did."""
    rng = np.random.default_rng(seed)
    sent = {topic.name: bulk(topic, 200, rng) for topic in (PROBE, CLOCK, OWD)}
    if version < 18:
        sent[PROBE.name] = cast_columns(sent[PROBE.name].drop_columns(["seq_rev"]), PROBE.columns)
    for topic in (PROBE, CLOCK, OWD):
        rows = bulk_rows(topic, [message(topic, sent[topic.name], seed)], "then").table
        if topic is PROBE and version < 18:
            rows = _as_then(rows, sent[topic.name]) if version < 7 else rows.drop_columns(["seq_rev"])
        engine.insert(tables.table_of(topic.name), rows, f"{topic.name}/{seed}")
    return sent


def _rows(table: pa.Table | pa.RecordBatch, topic: Any) -> list[tuple]:
    columns = []
    for field in topic.columns:
        values = [v.decode() if isinstance(v, bytes) else v for v in table[field.name].to_pylist()]
        if tables.is_rounded(topic, field):
            values = [None if v is None else round(v * 16) / 16 for v in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True), key=repr)


def _check(engine: Engine, sent: Mapping[str, pa.RecordBatch | pa.Table]) -> None:
    for topic in (PROBE, CLOCK, OWD):
        names = ", ".join(f.name for f in topic.columns)
        got = engine.arrow(f"SELECT {names} FROM {tables.table_of(topic.name)}")
        assert _rows(got, topic) == _rows(sent[topic.name], topic), topic.name
    n, lost = (sum(sent[OWD.name].column(c).to_pylist()) for c in ("n", "lost"))
    assert engine.rows("SELECT sum(n), sum(lost) FROM owd_1s") == [(n, lost)], "seconds of rows from before, once"
    leftovers = (
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND match(name, '_(0|moving|making)')"
    )
    assert engine.rows(leftovers) == []


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """An empty archive of every version, each a copy of the one before and one migration, to be copied."""
    folder = tmp_path_factory.mktemp("versions")
    made: dict[int, Path] = {}
    for step in migrations():
        made[step.version] = folder / str(step.version)
        if step.version > 1:
            shutil.copytree(made[step.version - 1], made[step.version], symlinks=True)
        with Engine.open(str(made[step.version]), create=True) as engine:
            assert migrate(engine, migrations()[: step.version]) == [step.name]
    return made


@pytest.fixture
def archive_of(versions: dict[int, Path], tmp_path: Path) -> Callable[[int], str]:
    """Makes an empty archive of a version."""
    return lambda version: str(shutil.copytree(versions[version], tmp_path / "archive", symlinks=True))


def test_rows_of_every_version_stay_and_todays_views_work(archive_of: Callable[[int], str]) -> None:
    """An archive that lived through all versions, with rows that each of them inserted."""
    with Engine.open(archive_of(1)) as engine:
        sent: list[dict[str, pa.RecordBatch]] = []
        for version in range(1, NEWEST + 1):
            sent.append(_fill(engine, version, seed=version))
            assert migrate(engine, migrations()[: version + 1]) == [m.name for m in migrations()[version : version + 1]]
        _check(engine, {name: pa.Table.from_batches([one[name] for one in sent]) for name in sent[0]})
        views = engine.rows("SELECT name FROM system.tables WHERE database = 'sdf' AND engine = 'View'")
        for (view,) in views:
            engine.rows(f"SELECT count() FROM (SELECT * FROM {view})")
        assert {"v_path_1s", "v_probe_kept"} <= {v for (v,) in views}
        assert engine.rows("SELECT count() FROM v_path_1s")[0][0] > 0


def test_rows_of_the_first_version_stay_when_all_later_ones_come_at_once(archive_of: Callable[[int], str]) -> None:
    with Engine.open(archive_of(1)) as engine:
        sent = _fill(engine, 1)
        assert migrate(engine) == [m.name for m in migrations()[1:]]
        _check(engine, sent)
        more = bulk(PROBE, 5, np.random.default_rng(9))
        engine.insert("raw_probe", bulk_rows(PROBE, [message(PROBE, more, 9)], "now").table, "new")
        assert engine.rows("SELECT count() FROM raw_probe") == [(205,)]


def test_a_migration_cut_short_after_every_statement_in_turn_neither_loses_nor_doubles_a_row(
    archive_of: Callable[[int], str],
) -> None:
    """Begun again from its head after the first statement, after the second, … until it comes to its end."""
    with Engine.open(archive_of(6)) as engine:
        sent = _fill(engine, 6)
        for step in migrations()[6:8]:
            for k in range(1, len(step.statements)):
                _run(engine, step.statements[:k])
            migrate(engine, migrations()[: step.version])
        migrate(engine)
        _check(engine, sent)


MOVES = [
    (m.version, k + 1)
    for m in migrations()[6:8]
    for k, s in enumerate(m.statements)
    if re.search(r"^(EXCHANGE|INSERT|RENAME)|ATTACH PARTITION", s, flags=re.MULTILINE)
]


@pytest.mark.parametrize(("version", "k"), MOVES)
def test_a_migration_cut_short_once_is_taken_up_again(archive_of: Callable[[int], str], version: int, k: int) -> None:
    with Engine.open(archive_of(6)) as engine:
        sent = _fill(engine, 6)
        migrate(engine, migrations()[: version - 1])
        _run(engine, migrations()[version - 1].statements[:k])
        migrate(engine)
        _check(engine, sent)


def _run(engine: Engine, statements: list[str]) -> None:
    for statement in statements:
        condition = guard(statement)
        if condition is None or engine.rows(condition)[0][0]:
            engine.command(statement)


def test_an_insert_by_an_older_sdfstream_during_the_move_stays_where_one_finds_it(
    archive_of: Callable[[int], str],
) -> None:
    with Engine.open(archive_of(6)) as engine:
        _fill(engine, 6)
        late = bulk(PROBE, 3, np.random.default_rng(5))
        rows = _as_then(bulk_rows(PROBE, [message(PROBE, late, 7)], "then").table, late)
        moved = next(i for i, s in enumerate(migrations()[6].statements) if "ATTACH PARTITION" in s)
        _run(engine, migrations()[6].statements[:moved])
        engine.insert("raw_probe_0007", rows, "late")
        migrate_rest = migrations()[6].statements[moved:]
        _run(engine, migrate_rest)
        assert engine.rows("SELECT count() FROM raw_probe_0007") == [(203,)]
        with pytest.raises(EngineError):
            engine.insert("raw_probe", rows, "later")


MIGRATOR = """
import sys
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrate
with Engine.open(sys.argv[1], create=True) as engine:
    print(len(migrate(engine)))
"""


def test_processes_that_share_a_server_take_turns(archive_of: Callable[[int], str]) -> None:
    folder = archive_of(6)
    with Engine.open(folder) as engine:
        sent = _fill(engine, 6)
        front = SqlFront.start(folder, token=TOKEN)
        url = f"http://x:{TOKEN.replace(' ', '%20')}@127.0.0.1:{front.port}/sdf"
        runs = [
            subprocess.Popen([sys.executable, "-c", MIGRATOR, url], stdout=subprocess.PIPE, text=True, cwd=ROOT)
            for _ in range(3)
        ]
        applied = [run.communicate(timeout=120)[0].strip() for run in runs]
        assert [run.returncode for run in runs] == [0, 0, 0]
        assert sorted(applied) == ["0", "0", str(NEWEST - 6)]
        assert engine.rows("SELECT count(), uniqExact(version) FROM migration") == [(NEWEST, NEWEST)]
        _check(engine, sent)
        assert engine.rows("EXISTS TABLE migration_turn") == [(0,)]
        front.close()


def test_the_turn_of_a_process_that_died_is_taken_over(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(migrate_lock_io, "_STALE_S", 0.5)
    monkeypatch.setattr(migrate_lock_io, "_HEARTBEAT_S", 0.1)
    folder = str(tmp_path / "archive")
    front = SqlFront.start(folder, token="t")
    with Engine.open(f"http://x:t@127.0.0.1:{front.port}/sdf", create=True) as engine:
        engine.command(migrate_lock_io._LOCK_SQL)
        engine.command("INSERT INTO migration_turn (holder) VALUES ('dead')")
        assert len(migrate(engine)) == NEWEST
        assert engine.rows("EXISTS TABLE migration_turn") == [(0,)]
    front.close()


def test_a_process_that_lost_its_turn_goes_no_further(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(migrate_lock_io, "_HEARTBEAT_S", 60)
    folder = str(tmp_path / "archive")
    front = SqlFront.start(folder, token="t")
    with Engine.open(f"http://x:t@127.0.0.1:{front.port}/sdf", create=True) as engine:
        with (
            pytest.raises(ArchiveError, match="another process took over"),
            migrate_lock_io.migration_lock(engine) as check_held,
        ):
            check_held()
            engine.command("INSERT INTO migration_turn (holder, at) VALUES ('other', now64(3) + 1)")
            check_held()
        assert engine.rows("SELECT count() FROM migration_turn") == [(2,)], "what is another's is left alone"
    front.close()
