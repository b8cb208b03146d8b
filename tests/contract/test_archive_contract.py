"""What every engine behind the archive must do; see tests/fixtures/engines.py for what "every" means here."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.archive import tables
from sdfstream.archive.batching import message_bytes
from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failed_inserts_io import FailedInserts
from sdfstream.archive.failures import EngineError
from sdfstream.archive.migrate_io import migrate, migrations, set_retention
from sdfstream.archive.retention import AGING, Retention
from sdfstream.archive.rows import bulk_rows
from sdfstream.archive.writer_io import Archive
from sdfstream.errors import ArchiveError
from sdfstream.records.topics import ARCHIVED, CLOCK, NIC, OWD, PROBE
from tests.fixtures.archive import BULK, BUS_COLUMNS, EVENTS, bulk, event, message, one_of_each


def _config(target: str, tmp_path, **given) -> ArchiveConfig:
    return ArchiveConfig(target, "run-1", kept_dir=str(tmp_path / "kept"), retry_ms=1, **given)


def _count(target: str, table: str) -> int:
    engine = Engine.open(target)
    try:
        return engine.rows(f"SELECT count() FROM {table}")[0][0]
    finally:
        engine.close()


async def test_every_topic_arrives_whole(target: str, tmp_path) -> None:
    messages = one_of_each(np.random.default_rng(5))
    archive = Archive.open(_config(target, tmp_path))
    await archive.add(messages)
    await archive.flush()
    for sent in messages:
        assert _count(target, tables.table_of(sent.topic)) == sent.rows, sent.topic
    await archive.close()
    assert archive.counters.get("rows", "raw_probe") == 50
    assert archive.counters.get("messages") == len(messages)
    assert archive.pending_bytes == 0


@pytest.mark.parametrize("topic", BULK, ids=lambda t: t.name)
def test_columns_come_back_by_the_contracts_names_bit_for_bit(target: str, tmp_path, topic) -> None:
    sent = bulk(topic, 300, np.random.default_rng(6))
    archive = Archive.open(_config(target, tmp_path))
    archive.add_blocking([message(topic, sent)])
    archive.close_blocking()
    names = [f.name for f in topic.columns]
    engine = Engine.open(target)
    got = engine.arrow(f"SELECT {', '.join(names)} FROM {tables.table_of(topic.name)}")
    engine.close()
    assert _sorted(topic, got) == _sorted(topic, pa.Table.from_batches([sent]))


def _sorted(topic, table: pa.Table) -> list[tuple]:
    """Rows as Python values in a fixed order, with the rounding that the archive states."""
    columns = []
    for field in topic.columns:
        values = [v.decode() if isinstance(v, bytes) else v for v in table[field.name].to_pylist()]
        if tables.is_rounded(topic, field):
            values = [None if v is None else round(v * 16) / 16 for v in values]
        columns.append(values)
    return sorted(zip(*columns, strict=True), key=repr)


def test_an_insert_repeated_with_its_token_is_dropped_also_after_reopening(target: str) -> None:
    rows = bulk_rows(PROBE, [message(PROBE, bulk(PROBE, 1000, np.random.default_rng(1)))], "run").table
    engine = Engine.open(target, create=True)
    migrate(engine)
    engine.insert("raw_probe", rows, "a")
    engine.insert("raw_probe", rows, "a")
    engine.insert("raw_probe", rows, "b")
    engine.close()
    engine = Engine.open(target)
    engine.insert("raw_probe", rows, "b")
    assert engine.rows("SELECT count() FROM raw_probe") == [(2000,)]
    engine.close()


def test_an_insert_without_a_column_leaves_it_its_default(target: str) -> None:
    """`INSERT_SETTINGS` say that no value is left out of the columns that an insert names; others have theirs."""
    with Engine.open(target, create=True) as engine:
        engine.command(
            "CREATE TABLE of_test (n Int64, m Int64 DEFAULT n + 1, s Nullable(String)) ENGINE = MergeTree ORDER BY n"
        )
        engine.insert("of_test", pa.table({"n": pa.array([1, 2], pa.int64())}), "a")
        engine.insert("of_test", pa.table({"n": pa.array([3], pa.int64()), "s": pa.array([None], pa.utf8())}), "b")
        assert engine.rows("SELECT n, m, s FROM of_test ORDER BY n") == [(1, 2, None), (2, 3, None), (3, 4, None)]


def test_delays_are_stored_by_what_differs_from_the_window_before(target: str) -> None:
    """Cheaper to write than ZSTD, and no larger; values of any kind come back to the bit."""
    sent = bulk(OWD, 4000, np.random.default_rng(5))
    with Engine.open(target, create=True) as engine:
        migrate(engine)
        codecs = engine.rows(
            "SELECT DISTINCT compression_codec FROM system.columns"
            " WHERE database = currentDatabase() AND table = 'derived_owd' AND type = 'Nullable(Float64)'"
        )
        assert codecs == [("CODEC(Gorilla(8), LZ4)",)]
        engine.insert("derived_owd", bulk_rows(OWD, [message(OWD, sent)], "run").table, "a")
        got = engine.arrow(f"SELECT {', '.join(f.name for f in OWD.columns)} FROM derived_owd")
        assert _sorted(OWD, got) == _sorted(OWD, pa.Table.from_batches([sent]))


def test_migrations_are_applied_once_and_recorded(bare_target: str) -> None:
    engine = Engine.open(bare_target, create=True)
    try:
        assert migrate(engine) == [m.name for m in migrations()]
        assert migrate(engine) == []
        recorded = engine.rows("SELECT version, name FROM migration ORDER BY version")
        assert recorded == [(m.version, m.name) for m in migrations()]
        engine.command("INSERT INTO migration (version, name, digest) VALUES (99, '0099_later.sql', '')")
        with pytest.raises(ArchiveError, match="newer"):
            migrate(engine)
    finally:
        engine.close()


def test_a_migration_interrupted_in_the_middle_is_resumed(bare_target: str) -> None:
    engine = Engine.open(bare_target, create=True)
    try:
        for statement in migrations()[0].statements[:3]:
            engine.command(statement)
        assert migrate(engine) == [m.name for m in migrations()]
    finally:
        engine.close()


def test_every_contract_column_has_a_column_and_unknown_is_null(target: str) -> None:
    engine = Engine.open(target, create=True)
    try:
        migrate(engine)
        sql = "SELECT name, type FROM system.columns WHERE database = 'sdf' AND table = {t:String}"
        for topic in ARCHIVED.values():
            found = dict(engine.rows(sql, {"t": tables.table_of(topic.name)}))
            assert set(BUS_COLUMNS) <= found.keys()
            for field in topic.columns or ():
                assert ("Nullable" in found[field.name]) == field.nullable, (topic.name, field.name)
    finally:
        engine.close()


def test_what_ages_is_set_and_lifted_again_and_what_states_something_never_does(target: str) -> None:
    engine = Engine.open(target, create=True)
    sql = "SELECT name FROM retention FINAL WHERE seconds > 0 ORDER BY name"
    try:
        migrate(engine)
        for retention in (Retention(raw_hours=6), Retention(raw_hours=6), Retention()):
            assert set_retention(engine, retention) == retention
            assert [name for (name,) in engine.rows(sql)] == sorted(a.table for a in AGING)
        set_retention(engine, Retention(raw_hours=None))
        assert [n for (n,) in engine.rows(sql)] == sorted(a.table for a in AGING if a.setting != "raw_hours")
        set_retention(engine, None)
        assert engine.rows(sql) == []
    finally:
        engine.close()


def test_errors_carry_clickhouses_code_and_words(target: str) -> None:
    engine = Engine.open(target, create=True)
    try:
        with pytest.raises(EngineError, match="nowhere") as caught:
            engine.rows("SELECT * FROM nowhere")
        assert caught.value.code == 60
        assert not caught.value.may_pass
        with pytest.raises(EngineError) as caught:
            engine.rows("SELECT sleep(3) SETTINGS max_execution_time = 1")
        assert caught.value.code == 159
        assert caught.value.may_pass
    finally:
        engine.close()


def test_parameters_and_an_empty_result_keep_their_meaning(target: str) -> None:
    engine = Engine.open(target, create=True)
    try:
        odd = "it's\ta `test`\n\\ €"
        assert engine.rows("SELECT {x:String}, {n:Int64}", {"x": odd, "n": -(2**63)}) == [(odd, -(2**63))]
        migrate(engine)
        assert engine.arrow("SELECT src, seq FROM raw_probe").column_names == ["src", "seq"]
    finally:
        engine.close()


async def test_what_cannot_be_read_lands_in_the_table_reject_and_the_rest_goes_on(target: str, tmp_path) -> None:
    good = EVENTS[NIC.name]
    archive = Archive.open(_config(target, tmp_path))
    await archive.add([event(NIC, good), event(NIC, {"nic": "h00/r0"}, 1), event(NIC, good, 2)])
    await archive.add([message(PROBE, bulk(PROBE, 5, np.random.default_rng(0)).drop_columns(["seq"]))])
    await archive.flush()
    engine = Engine.open(target)
    refused = engine.rows("SELECT topic, reason, detail, rows, bus_seq FROM reject ORDER BY topic DESC")
    engine.close()
    await archive.close()
    assert refused == [(NIC.name, "field-missing", "direction", 1, 1), (PROBE.name, "column-missing", "seq", 5, 0)]
    assert archive.counters.get("refused", "field-missing") == 1
    assert archive.counters.get("refused", "column-missing") == 5
    assert archive.counters.get("rows", "state_nic") == 2


async def test_an_insert_that_can_never_succeed_is_stored_with_its_reason_and_restored_later(
    target: str, tmp_path
) -> None:
    config = _config(target, tmp_path)
    sent = bulk(CLOCK, 7, np.random.default_rng(0))
    archive = Archive.open(config)
    saboteur = Engine.open(target)
    saboteur.command("RENAME TABLE state_clock TO hidden")
    await archive.add([message(CLOCK, sent)])
    await archive.flush()
    assert archive.counters.get("kept", "state_clock") == 7
    (path,) = FailedInserts.of(config).files()
    kept = FailedInserts.of(config).read(path)
    assert kept.table == "state_clock"
    assert "state_clock" in kept.reason
    assert kept.rows.num_rows == 7
    await archive.close()
    saboteur.command("RENAME TABLE hidden TO state_clock")
    saboteur.close()

    archive = Archive.open(config)
    await archive.close()
    assert archive.counters.get("restored", "state_clock") == 7
    assert FailedInserts.of(config).files() == []
    assert _count(target, "state_clock") == 7


async def test_age_alone_makes_rows_visible(target: str, tmp_path) -> None:
    archive = Archive.open(_config(target, tmp_path, limits=BatchLimits(age_ms=50)))
    await archive.add([message(CLOCK, bulk(CLOCK, 3, np.random.default_rng(0)))])
    for _ in range(1000):
        if archive.counters.get("rows", "state_clock") == 3:
            break
        await asyncio.sleep(0.01)
    assert archive.counters.get("inserts", "state_clock") == 1
    await archive.close()
    with pytest.raises(ArchiveError, match="closed"):
        await archive.add([])


async def test_add_waits_for_room_and_nothing_is_lost(target: str, tmp_path) -> None:
    rng = np.random.default_rng(3)
    sent = [message(PROBE, bulk(PROBE, 500, rng), i) for i in range(40)]
    one = message_bytes(sent[0])
    archive = Archive.open(
        _config(target, tmp_path, limits=BatchLimits(rows=2000, age_ms=60_000), pending_bytes=4 * one)
    )
    highest = 0
    for each in sent:
        await archive.add([each])
        highest = max(highest, archive.pending_bytes)
    await archive.flush()
    await archive.close()
    assert highest <= 6 * one
    assert _count(target, "raw_probe") == 40 * 500


def test_a_topic_without_a_table_is_counted(target: str, tmp_path) -> None:
    archive = Archive.open(_config(target, tmp_path))
    foreign = message(PROBE, bulk(PROBE, 2, np.random.default_rng(0)))
    archive.add_blocking([type(foreign)("sdf.raw.nothing.v1", "k", foreign.body, 1, 1)])
    archive.close_blocking()
    assert archive.counters.get("refused", "no-table") == 2


async def test_a_message_that_no_check_foresaw_is_refused_alone(target: str, tmp_path) -> None:
    rng = np.random.default_rng(0)
    sent = [message(CLOCK, bulk(CLOCK, 4, rng), seq) for seq in range(3)]
    sent[1] = replace(sent[1], bus_seq=-1)
    archive = Archive.open(_config(target, tmp_path))
    await archive.add(sent)
    await archive.flush()
    await archive.add([message(CLOCK, bulk(CLOCK, 4, rng), 3)])
    await archive.close()
    assert _count(target, "state_clock") == 12
    assert archive.counters.get("refused", "defect") == 4
    assert archive.counters.get("unwritable") == 4
