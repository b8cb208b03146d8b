"""Messages of every topic through the worker thread into chDB and back."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.archive import tables
from sdfstream.archive.config import ArchiveConfig, BatchLimits
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_io import migrate, migrations, set_ttl
from sdfstream.archive.writer_io import Archive
from sdfstream.errors import ArchiveError, UnavailableError
from sdfstream.records.topics import CLOCK, PROBE, TOPICS
from tests.fixtures.archive import BULK, bulk, message, one_of_each


def _config(tmp_path, **given) -> ArchiveConfig:
    return ArchiveConfig(str(tmp_path / "archive"), "run-1", **given)


async def test_every_topic_arrives_whole(tmp_path) -> None:
    messages = one_of_each(np.random.default_rng(5))
    archive = Archive.open(_config(tmp_path))
    await archive.add(messages)
    await archive.flush()
    engine = Engine.open(str(tmp_path / "archive"))
    try:
        for sent in messages:
            table = tables.table_of(sent.topic)
            assert engine.rows(f"SELECT count() FROM {table}") == [(sent.rows,)], table
    finally:
        engine.close()
        await archive.close()
    assert archive.counters.get("rows", "raw_probe") == 50
    assert archive.pending_bytes == 0


@pytest.mark.parametrize("topic", BULK, ids=lambda t: t.name)
def test_a_topics_columns_come_back_by_the_contracts_names(tmp_path, topic) -> None:
    sent = bulk(topic, 200, np.random.default_rng(6))
    archive = Archive.open(_config(tmp_path))
    archive.add_blocking([message(topic, sent)])
    archive.flush_blocking()
    names = [f.name for f in topic.columns]
    got = archive._engine.arrow(f"SELECT {', '.join(names)} FROM {tables.table_of(topic.name)}")
    archive.close_blocking()
    order = [(n, "ascending") for n in names if n not in ("rx_power_dbm",)][:8]
    want = _plain(sent).sort_by(order)
    got = got.sort_by(order)
    for field in topic.columns:
        a, b = want[field.name].to_pylist(), got[field.name].to_pylist()
        if tables.is_rounded(topic, field):
            a = [None if v is None else round(v * 16) / 16 for v in a]
        assert a == [v.decode() if isinstance(v, bytes) else v for v in b], field.name


def _plain(batch):
    plain = [c.cast(pa.utf8()) if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.table(dict(zip(batch.schema.names, plain, strict=True)))


def test_migrations_are_applied_once_and_recorded(tmp_path) -> None:
    engine = Engine.open(str(tmp_path / "archive"), create=True)
    try:
        assert migrate(engine) == [m.name for m in migrations()]
        assert migrate(engine) == []
        assert engine.rows("SELECT version, name FROM migration ORDER BY version") == [
            (m.version, m.name) for m in migrations()
        ]
        engine.command("INSERT INTO migration (version, name, digest) VALUES (99, '0099_later.sql', '')")
        with pytest.raises(ArchiveError, match="newer"):
            migrate(engine)
    finally:
        engine.close()


def test_every_contract_column_has_a_stored_or_alias_column(tmp_path) -> None:
    engine = Engine.open(str(tmp_path / "archive"), create=True)
    try:
        migrate(engine)
        for topic in TOPICS.values():
            found = dict(
                engine.rows(
                    "SELECT name, type FROM system.columns WHERE database = 'sdf' AND table = {t:String}",
                    {"t": tables.table_of(topic.name)},
                )
            )
            assert set(tables.BUS_COLUMNS) <= found.keys()
            for field in topic.columns or ():
                assert ("Nullable" in found[field.name]) == field.nullable, (topic.name, field.name)
    finally:
        engine.close()


def test_ttl_is_set_on_raw_and_derived_rows_only_and_lifted_again(tmp_path) -> None:
    engine = Engine.open(str(tmp_path / "archive"), create=True)
    sql = "SELECT name FROM system.tables WHERE database = 'sdf' AND engine_full LIKE '% TTL %' ORDER BY name"
    try:
        migrate(engine)
        set_ttl(engine, 6)
        set_ttl(engine, 6)
        aging = [n for (n,) in engine.rows(sql)]
        assert aging == ["derived_owd", "raw_liveness", "raw_port", "raw_probe", "reject"]
        set_ttl(engine, None)
        assert engine.rows(sql) == []
    finally:
        engine.close()


async def test_age_alone_makes_rows_visible(tmp_path) -> None:
    archive = Archive.open(_config(tmp_path, limits=BatchLimits(age_ms=50)))
    await archive.add([message(CLOCK, bulk(CLOCK, 3, np.random.default_rng(0)))])
    for _ in range(400):
        if archive.counters.get("rows", "state_clock") == 3:
            break
        await asyncio.sleep(0.01)
    assert archive.counters.get("inserts", "state_clock") == 1
    await archive.close()
    with pytest.raises(ArchiveError, match="closed"):
        await archive.add([])


def test_a_topic_without_a_table_is_counted(tmp_path) -> None:
    archive = Archive.open(_config(tmp_path))
    foreign = message(PROBE, bulk(PROBE, 2, np.random.default_rng(0)))
    archive.add_blocking([type(foreign)("sdf.raw.qp.v1", "k", foreign.body, 1, 1)])
    archive.close_blocking()
    assert archive.counters.get("refused", "no-table") == 2


def test_opening_what_is_not_there_is_a_sentence(tmp_path) -> None:
    with pytest.raises(UnavailableError, match="does not exist"):
        Engine.open(str(tmp_path / "nowhere"))
