"""Programs one release apart on one bus: each reads what the other writes, and what it cannot know it refuses aloud."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from sdfstream.bus import codec
from sdfstream.bus.conform import conform
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.errors import FormatError
from sdfstream.records import publish
from sdfstream.records.message import Event
from sdfstream.records.topics import ARCHIVED, TOPICS
from tests.golden import frozen
from tests.golden.frozen import Wire

TODAY = frozen.wire_today()
OLD = frozen.versions()
BULK = [w for w in TODAY if not frozen.is_event(w)]
EVENTS = [w for w in TODAY if frozen.is_event(w)]


def name_of(wire: Any) -> str:
    return str(wire.topic) if isinstance(wire, Wire) else str(wire)


def arrow(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue().to_pybytes())


def with_schema(wire: Wire, schema: str) -> list[tuple[str, bytes]]:
    return [(n, schema.encode() if n == "schema" else v) for n, v in wire.headers]


async def on_a_bus(wires: list[Wire]) -> tuple[list[Any], list[Any]]:
    """Messages and dead letters, as a reader gets them."""
    bus = MemoryBus(lambda: 1, boot_id="bus")
    reader = await bus.subscribe("g", sorted({w.topic for w in wires}))
    dead = await bus.subscribe("d", sorted({TOPICS[w.topic].dead_letters for w in wires}))
    for wire in wires:
        await bus.publish_bytes(*wire)
    found = await reader.read(10_000, 0.01), await dead.read(10_000, 0.01)
    await bus.close()
    return found


def test_a_changed_schema_is_frozen() -> None:
    assert frozen.schema_of(OLD[-1]) == frozen.schema_today(), (
        "a topic's columns or an event's fields changed: run `python -m tests.golden.frozen` and commit what it makes"
    )


def test_every_topic_and_type_is_frozen_and_fits_its_published_schema() -> None:
    assert {w.topic for w in TODAY} == set(TOPICS)
    for wire in EVENTS:
        schema = json.loads(publish.files()[f"{wire.topic}.schema.json"])
        jsonschema.Draft202012Validator(schema).validate(json.loads(wire.value))
    said = {(w.topic, json.loads(w.value)["type"]) for w in EVENTS}
    assert said == {(t, kind) for t, told in frozen.schema_today().items() for kind in told.get("types", ())}


@pytest.mark.parametrize("version", OLD)
def test_nothing_was_removed_or_made_another_thing_since(version: int) -> None:
    today = frozen.schema_today()
    for topic, told in frozen.schema_of(version).items():
        was, now = ({name: rest for name, *rest in t.get("columns", ())} for t in (told, today[topic]))
        assert was.items() <= now.items(), topic
        assert all(now[name][1] for name in now.keys() - was.keys()), f"{topic}: a new column may be null"
        for kind, shape in told.get("types", {}).items():
            fields, then = today[topic]["types"][kind]["properties"], shape["properties"]
            assert then.keys() <= fields.keys(), kind
            assert set(today[topic]["types"][kind]["required"]) <= set(shape["required"]), (
                f"{kind}: what is new is optional"
            )


@pytest.mark.parametrize("version", OLD)
async def test_todays_readers_read_every_frozen_message_fully(version: int) -> None:
    wires = list(frozen.wire_of(version))
    schema = frozen.schema_of(version)
    assert {w.topic for w in wires} == schema.keys()
    for wire in wires:
        decoded = codec.decode(wire.topic, wire.headers, wire.value)
        assert decoded.refused_rows == 0
        assert (decoded.boot_id, decoded.batch_seq) == ("boot-1", int(dict(wire.headers)["batch_seq"]))
        if isinstance(decoded.body, Event):
            assert frozen.events_equal(decoded.body, wire.value)
            continue
        written = codec.read_one_batch(wire.value)
        known = [name for name, *_ in schema[wire.topic]["columns"]]
        assert written.schema.names == known
        assert decoded.body.select(known).equals(written)
        for name in set(decoded.body.schema.names) - set(known):
            assert decoded.body.column(name).null_count == decoded.body.num_rows
    messages, dead = await on_a_bus(wires)
    assert len(messages) == len(wires)
    assert dead == []


@pytest.mark.parametrize("version", OLD)
def test_todays_replay_reads_every_frozen_recording_fully(version: int) -> None:
    recording = open_recording(frozen.HERE / str(version) / "recording")
    found = list(recording.messages())
    assert recording.rejects == []
    wanted = [w for w in frozen.wire_of(version) if w.topic in ARCHIVED]
    assert sorted((m.topic, m.key, m.batch_seq) for m in found) == sorted(
        (w.topic, w.key, int(dict(w.headers)["batch_seq"])) for w in wanted
    )
    for message in found:
        wire = next(w for w in wanted if (w.topic, w.key) == (message.topic, message.key))
        if isinstance(message.body, Event):
            assert any(frozen.events_equal(message.body, w.value) for w in wanted if w.topic == message.topic)
        else:
            assert message.body.num_rows == codec.read_one_batch(wire.value).num_rows


@pytest.mark.parametrize("version", OLD)
def test_archives_of_today_take_rows_of_every_frozen_version(version: int, archive_folder: Path) -> None:
    from sdfstream.archive.config import ArchiveConfig
    from sdfstream.archive.tables import table_of
    from sdfstream.archive.writer_io import Archive

    found = list(open_recording(frozen.HERE / str(version) / "recording").messages())
    archive = Archive.open(ArchiveConfig(str(archive_folder), "old"))
    archive.add_blocking(found)
    archive.close_blocking()
    counters = archive.counters.as_dict()
    assert not [name for name in counters if ".refused" in name or ".lost" in name], counters
    for topic in {m.topic for m in found}:
        rows = sum(m.rows for m in found if m.topic == topic)
        assert counters[f"archive.rows.{table_of(topic)}"] >= rows


@pytest.mark.parametrize("wire", BULK, ids=name_of)
def test_an_older_reader_reads_rows_of_today(wire: Wire) -> None:
    """One that does not know the newest column that may be null, nor where it stands."""
    columns = TOPICS[wire.topic].columns
    assert columns is not None
    batch = codec.read_one_batch(wire.value)
    newest = next((f.name for f in reversed(list(columns)) if f.nullable), None)
    if newest is None:
        batch, older = batch.append_column("added", pa.nulls(batch.num_rows, pa.int64())), columns
    else:
        older = pa.schema([f for f in columns if f.name != newest])
    read, refused = conform(older, batch)
    assert refused == 0
    assert read.equals(batch.select(older.names))


@pytest.mark.parametrize("wire", EVENTS, ids=name_of)
def test_an_older_reader_reads_events_of_today(wire: Wire) -> None:
    """By the published schema of every frozen version: a field that it does not know is no mistake."""
    told = json.loads(wire.value)
    for version in OLD:
        shape = frozen.schema_of(version)[wire.topic]["types"].get(told["type"])
        if shape is not None:
            check = jsonschema.Draft202012Validator(shape)
            check.validate(told["data"])
            check.validate(told["data"] | {"added_later": {"x": 1}})


@pytest.mark.parametrize("wire", TODAY, ids=name_of)
async def test_what_a_newer_writer_says_is_read_and_nothing_of_what_we_know_is_lost(wire: Wire) -> None:
    """A column and a field more, in the middle too; a header more; a higher minor number of the schema."""
    value = wire.value
    if frozen.is_event(wire):
        told = json.loads(value)
        told["data"]["added_later"] = [1, {"deep": None}]
        value = json.dumps(told | {"newattribute": "x"}).encode()
    else:
        batch = codec.read_one_batch(value)
        more = pa.array(range(batch.num_rows), pa.int64())
        value = arrow(batch.add_column(1, "added_first", more).append_column("added_last", more.cast(pa.utf8())))
    headers = [*with_schema(wire, f"{wire.topic}.12"), ("added-header", b"1")]
    ours = codec.decode(wire.topic, wire.headers, wire.value)
    decoded = codec.decode(wire.topic, headers, value)
    assert decoded.refused_rows == 0
    assert (decoded.boot_id, decoded.batch_seq) == (ours.boot_id, ours.batch_seq)
    if isinstance(decoded.body, Event):
        assert isinstance(ours.body, Event)
        assert decoded.body.data == {**ours.body.data, "added_later": [1, {"deep": None}]}, "and it is passed on"
    else:
        assert decoded.body.equals(ours.body)
    messages, dead = await on_a_bus([Wire(wire.topic, wire.key, headers, value)])
    assert len(messages) == 1
    assert dead == []


@pytest.mark.parametrize("wire", TODAY, ids=name_of)
async def test_another_major_version_is_refused_with_its_reason_and_kept(wire: Wire) -> None:
    stem, _ = wire.topic.rsplit(".v", 1)
    for schema in (f"{stem}.v2", f"{stem}.v2.1", f"{wire.topic}0", f"{wire.topic}.x", f"{wire.topic}."):
        headers = with_schema(wire, schema)
        with pytest.raises(FormatError, match="schema-version"):
            codec.decode(wire.topic, headers, wire.value)
        messages, dead = await on_a_bus([Wire(wire.topic, wire.key, headers, wire.value)])
        assert messages == []
        (letter,) = dead
        assert letter.body.data["reason"] == "schema-version"
        assert schema in letter.body.data["detail"]


def test_a_recording_of_a_newer_writer_is_read(tmp_path: Path) -> None:
    newest = frozen.HERE / str(OLD[-1]) / "recording"
    for path in newest.iterdir():
        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            for line in lines:
                line["headers"]["schema"] += ".3"
                line["value"]["data"]["added_later"] = 1
            (tmp_path / path.name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        elif path.suffix == ".arrows":
            table = pa.ipc.open_stream(path.read_bytes()).read_all()
            table = table.append_column("added", pa.nulls(table.num_rows, pa.float64()))
            with pa.ipc.new_stream(str(tmp_path / path.name), table.schema) as writer:
                writer.write_table(table)
        else:
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "sdf.raw.unheardof.v1.jsonl").write_text("{}\n")
    theirs, ours = open_recording(tmp_path), open_recording(newest)
    told, known = list(theirs.messages()), list(ours.messages())
    assert [(m.topic, m.bus_at_ns, m.rows) for m in told] == [(m.topic, m.bus_at_ns, m.rows) for m in known]
    assert [r.file for r in theirs.rejects] == ["sdf.raw.unheardof.v1.jsonl"], "what is not known at all is said"
