"""Recordings: written once, read by anyone, read as far as they are whole."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import count
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.reader_io import REJECTS, open_recording, write_rejects
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK, FINDING, NIC, PROBE
from sdfstream.records.units import NS_PER_MS, NS_PER_S
from tests.bus_samples import clock, clock_batch, finding, mark_of, probe_batch

START = 1_800_000_000 * NS_PER_S


def some_messages(n: int = 40, rows: int = 30) -> list[Message]:
    """Probe batches of two hosts, clock rows and findings over `n` × 100 ms, in replay order."""
    found = []
    for i in range(n):
        at = START + i * 100 * NS_PER_MS
        host = f"h{i % 2:02}"
        found += [
            Message(FINDING.name, f"f{i}", finding(i).body, at, i, "boot-s", i),
            Message(PROBE.name, host, probe_batch(rows, i, host), at, i, f"boot-{host}", i // 2),
            Message(CLOCK.name, "mesh", clock_batch(i), at, i),
        ]
    return found


def write(directory: Path, messages: list[Message], **options: object) -> Path:
    writer = RecordingWriter(directory, cluster="lab", **options)  # type: ignore[arg-type]
    writer.write(messages)
    writer.finish()
    return directory


def plain(messages: list[Message]) -> list[tuple[object, ...]]:
    """Messages as values, so that another dictionary of the same names makes no difference."""
    return [
        (m.topic, m.key, m.bus_at_ns, m.bus_seq, m.boot_id, m.batch_seq)
        + ((m.body.to_pylist(),) if isinstance(m.body, pa.RecordBatch) else (m.body,))
        for m in messages
    ]


@pytest.mark.parametrize("compression", ["zstd", None])
def test_what_was_written_is_read(tmp_path: Path, compression: str | None) -> None:
    sent = sorted(some_messages(), key=recording.merged_key)
    found = open_recording(write(tmp_path / "r", sent, compression=compression))
    assert plain(list(found.messages())) == plain(sent)
    assert plain(list(found.messages())) == plain(sent), "a second pass is the same"
    assert (found.start_at_ns, found.end_at_ns, found.cluster) == (START, START + 39 * 100 * NS_PER_MS, "lab")
    assert found.rejects == []
    assert found.topics == (FINDING.name, PROBE.name, CLOCK.name)
    assert plain(list(found.messages({CLOCK.name}))) == plain([m for m in sent if m.topic == CLOCK.name])
    body = next(iter(found.messages({PROBE.name}))).body
    assert body.schema.equals(PROBE.columns, check_metadata=True)


def test_the_same_messages_give_the_same_bytes_however_they_are_handed_over(tmp_path: Path) -> None:
    sent = some_messages()
    write(tmp_path / "a", sent)
    writer = RecordingWriter(tmp_path / "b", cluster="lab")
    for message in sent:
        writer.write([message])
    writer.finish()
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert names == sorted([f"{FINDING.name}.jsonl", f"{PROBE.name}.arrows", f"{CLOCK.name}.arrows", "recording.json"])
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    again = write(tmp_path / "c", list(open_recording(tmp_path / "a").messages()))
    for name in names:
        assert (again / name).read_bytes() == (tmp_path / "a" / name).read_bytes(), "copying changes nothing"


def test_polars_and_pyarrow_read_a_file_whose_blocks_have_different_names(tmp_path: Path) -> None:
    sent = [Message(PROBE.name, f"h{i}", probe_batch(9, i, f"h{i}"), START + i * NS_PER_S, i) for i in range(5)]
    path = write(tmp_path / "r", sent) / f"{PROBE.name}.arrows"
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        table = reader.read_all()
        assert reader.stats.num_record_batches == 5
        assert reader.stats.num_replaced_dictionaries > 0
        assert reader.stats.num_dictionary_deltas == 0
    assert table.schema.names[:2] == ["bus_at_ns", "bus_seq"]
    assert table.schema.field("t1_ns").metadata[b"unit"].startswith(b"ns since epoch")
    frame = pl.read_ipc_stream(path)
    assert frame["src"].cast(str).to_list() == table["src"].to_pylist()
    assert frame["bus_seq"].dtype == pl.UInt64
    assert frame["bus_key"].cast(str).unique().sort().to_list() == [f"h{i}" for i in range(5)]
    events = write(tmp_path / "e", some_messages(3)) / f"{FINDING.name}.jsonl"
    lines = pl.read_ndjson(events)
    assert lines.columns == ["bus_at_ns", "bus_seq", "headers", "key", "value"]
    assert lines["value"].struct.field("id").to_list() == ["f0", "f1", "f2"]


def test_blocks_end_at_seconds_and_at_their_size(tmp_path: Path) -> None:
    sent = [Message(CLOCK.name, "m", clock_batch(i, 20_000), START + i * NS_PER_MS, i) for i in range(8)]
    sent += [Message(CLOCK.name, "m", clock_batch(i, 1), START + NS_PER_S + i, i) for i in range(8, 10)]
    path = write(tmp_path / "r", sent) / f"{CLOCK.name}.arrows"
    with pa.ipc.open_stream(path.read_bytes()) as reader:
        assert [b.num_rows for b in reader] == [60_000, 60_000, 40_000, 2]
    assert plain(list(open_recording(tmp_path / "r").messages())) == plain(sent)


async def test_as_a_publisher_it_stamps_with_the_clock(tmp_path: Path) -> None:
    times = count(START, 10)
    writer = RecordingWriter(tmp_path / "r", lambda: next(times), cluster="two hosts", boot_id="agent")
    await writer.publish([clock(1, "h0"), finding(2)])
    await writer.publish([clock(3, "h0")])
    await writer.close()
    found = open_recording(tmp_path / "r")
    messages = list(found.messages())
    assert [(m.bus_at_ns - START, m.bus_seq, m.batch_seq, mark_of(m.body)) for m in messages] == [
        (0, 0, 0, 2),
        (0, 0, 0, 1),
        (10, 1, 1, 3),
    ]
    assert {m.boot_id for m in messages} == {"agent"}
    assert found.end_at_ns == START + 20


async def test_a_clock_that_goes_back_does_not_take_the_recording_with_it(tmp_path: Path) -> None:
    times = iter([START + 5, START, START + 6])
    writer = RecordingWriter(tmp_path / "r", lambda: next(times))
    await writer.publish([clock(1)])
    await writer.publish([clock(2)])
    await writer.close()
    assert [m.bus_at_ns - START for m in open_recording(tmp_path / "r").messages()] == [5, 5]


def test_late_messages_of_another_partition_are_restamped_and_counted(tmp_path: Path) -> None:
    stamps = [(START + 9, 0), (START + 5, 1 << 48), (START + 10, 1), (START + 12, 2)]
    writer = RecordingWriter(tmp_path / "r")
    writer.write([Message(CLOCK.name, "m", clock_batch(i), at, seq) for i, (at, seq) in enumerate(stamps)])
    writer.finish()
    assert writer.counters.get("restamped") == 2
    found = open_recording(tmp_path / "r")
    assert [(m.bus_at_ns - START, mark_of(m.body)) for m in found.messages()] == [(9, 0), (10, 1), (11, 2), (12, 3)]
    assert found.rejects == []


def test_a_killed_writer_leaves_all_but_the_last_two_seconds(tmp_path: Path) -> None:
    """One topic falls quiet early, the others go on; the process ends without closing anything."""
    code = f"""
import os
from tests.unit.bus.recording.test_reader_io import CLOCK, FINDING, NIC, START, Message, RecordingWriter
from tests.unit.bus.recording.test_reader_io import clock_batch, finding
writer = RecordingWriter({str(tmp_path / "r")!r})
writer.write([Message(NIC.name, "n", finding(99).body, START, 0)])
for i in range(100):
    at = START + i * 100_000_000
    writer.write([Message(CLOCK.name, "m", clock_batch(i), at, i), Message(FINDING.name, "f", finding(i).body, at, i)])
os._exit(9)
"""
    root = Path(__file__).resolve().parents[4]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False, timeout=60).returncode == 9
    found = open_recording(tmp_path / "r")
    messages = list(found.messages())
    assert [mark_of(m.body) for m in messages if m.topic == NIC.name] == [99]
    for topic in (CLOCK.name, FINDING.name):
        seen = [mark_of(m.body) for m in messages if m.topic == topic]
        assert seen == list(range(len(seen)))
        assert len(seen) >= 80
    assert found.end_at_ns >= START + 7_900_000_000


def test_a_folder_that_holds_a_recording_is_not_overwritten(tmp_path: Path) -> None:
    write(tmp_path / "r", some_messages(1))
    with pytest.raises(ConfigError, match="holds a recording already"):
        RecordingWriter(tmp_path / "r")


def test_what_is_no_recording_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        open_recording(tmp_path / "absent")
    with pytest.raises(ConfigError, match="no topic's file"):
        open_recording(tmp_path)
    (tmp_path / "recording.json").write_text('{"version": 9}')
    with pytest.raises(FormatError, match="recording-version"):
        open_recording(tmp_path)


@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_truncated_file_is_read_up_to_its_last_whole_block(tmp_path: Path, compression: str | None) -> None:
    sent = [Message(CLOCK.name, "m", clock_batch(i, 100), START + i * NS_PER_S, i) for i in range(6)]
    path = write(tmp_path / "r", sent, compression=compression) / f"{CLOCK.name}.arrows"
    whole = path.read_bytes()
    kept = set()
    for size in range(0, len(whole), 211):
        path.write_bytes(whole[:size])
        found = open_recording(tmp_path / "r")
        messages = list(found.messages())
        assert plain(messages) == plain(sent[: len(messages)])
        assert len(found.rejects) <= 1
        kept.add(len(messages))
    assert kept == set(range(6)), "every block that is whole was read"
    path.write_bytes(whole[:-8])  # without the mark of its end a file is whole
    assert len(list(open_recording(tmp_path / "r").messages())) == 6
    path.write_bytes(whole[:-100])
    found = open_recording(tmp_path / "r")
    assert len(list(found.messages())) == 5
    (reject,) = found.rejects
    assert (reject.file, reject.reason, reject.where) == (path.name, "truncated", "from block 5 on")
    assert found.counters.get("refused", "truncated") == 1


def test_a_torn_line_and_bad_lines_are_refused_and_the_others_read(tmp_path: Path) -> None:
    path = write(tmp_path / "r", some_messages(5)) / f"{FINDING.name}.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    other = json.loads(lines[2])
    other["headers"]["schema"] = "sdf.event.finding.v2"
    lines[1:4] = [b"not json\n", json.dumps(other).encode() + b"\n", b"[]\n", b"\n"]
    path.write_bytes(b"".join(lines)[:-20])
    found = open_recording(tmp_path / "r")
    messages = list(found.messages({FINDING.name}))
    assert [mark_of(m.body) for m in messages] == [0]
    assert [(r.reason, r.where) for r in found.rejects] == [
        ("json", "line 2"),
        ("schema-version", "line 3"),
        ("line", "line 4"),
        ("truncated", "line 6"),
    ]
    kept = write_rejects(tmp_path, found.rejects)
    assert kept == tmp_path / REJECTS
    assert [json.loads(x)["reason"] for x in kept.read_text().splitlines()] == [r.reason for r in found.rejects]
    assert write_rejects(tmp_path / "none", []) is None


@pytest.mark.parametrize(
    "meta", [None, b"", b"{", b'{"version": 1}', b'{"version": 1, "start_at_ns": 5, "end_at_ns": 1}']
)
def test_without_times_in_its_json_a_recording_takes_them_from_its_messages(tmp_path: Path, meta: bytes | None) -> None:
    write(tmp_path / "r", some_messages(30))
    path = tmp_path / "r" / "recording.json"
    path.unlink() if meta is None else path.write_bytes(meta)
    found = open_recording(tmp_path / "r")
    assert (found.start_at_ns, found.end_at_ns) == (START, START + 29 * 100 * NS_PER_MS)
    assert len(list(found.messages())) == 90
    assert [r.reason for r in found.rejects] == {None: ["missing"], b"": ["json"], b"{": ["json"]}.get(meta, [])


def test_a_file_of_an_unknown_topic_or_form_is_refused_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "r", some_messages(2))
    (path / "sdf.raw.probe.v9.arrows").write_bytes(b"x")
    (path / f"{CLOCK.name}.jsonl").write_bytes(b"x")
    (path / "notes.jsonl").write_bytes(b"x")
    found = open_recording(path)
    assert len(list(found.messages())) == 6
    assert [(r.reason, r.where) for r in found.rejects] == [("topic-unknown", "the file")] * 2


def foreign(path: Path, table: pa.Table, rows_per_block: int = 1 << 20) -> Path:
    path.mkdir()
    with pa.OSFile(str(path / f"{CLOCK.name}.arrows"), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, rows_per_block)
    return path


def clock_table(n: int, rows: int = 3) -> pa.Table:
    """What another program may write: plain text, no key, columns in another order, one of its own."""
    bodies = pa.Table.from_batches([clock_batch(i, rows) for i in range(n)]).combine_chunks()
    plain_text = [
        pa.field(f.name, pa.utf8() if pa.types.is_dictionary(f.type) else f.type, nullable=True) for f in CLOCK.columns
    ]
    table = bodies.cast(pa.schema(plain_text))
    table = table.append_column("remark", pa.array(["x"] * len(table)))
    table = table.append_column("bus_seq", pa.array(np.repeat(np.arange(n, dtype=np.uint64), rows)))
    table = table.append_column("bus_at_ns", pa.array(START + np.repeat(np.arange(n) * 1000, rows)))
    return table


@pytest.mark.parametrize("rows_per_block", [1, 2, 7, 1 << 20])
def test_a_foreign_recording_is_read_however_its_blocks_are_cut(tmp_path: Path, rows_per_block: int) -> None:
    found = open_recording(foreign(tmp_path / "r", clock_table(20), rows_per_block))
    messages = list(found.messages())
    assert [mark_of(m.body) for m in messages] == list(range(20))
    assert [m.rows for m in messages] == [3] * 20
    assert messages[4].body.to_pylist() == clock_batch(4, 3).to_pylist()
    assert [r.reason for r in found.rejects] == ["missing"]
    assert (found.start_at_ns, found.end_at_ns) == (START, START + 19_000)


def test_polars_can_write_a_recording(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    frame = pl.from_arrow(clock_table(5)).with_columns(pl.col("clock", "status", "kind").cast(pl.Categorical))  # type: ignore[union-attr]
    frame.write_ipc_stream(tmp_path / "r" / f"{CLOCK.name}.arrows")
    messages = list(open_recording(tmp_path / "r").messages())
    assert messages[3].body.to_pylist() == clock_batch(3, 3).to_pylist()


def test_rows_out_of_order_are_sorted_within_a_block_and_refused_behind_it(tmp_path: Path) -> None:
    table = clock_table(4, 1)
    mixed = pa.concat_tables(
        [table.slice(2, 1), table.slice(1, 1), table.slice(3, 1), table.slice(0, 1)]
    ).combine_chunks()
    found = open_recording(foreign(tmp_path / "r", mixed, 3))
    assert [mark_of(m.body) for m in found.messages()] == [1, 2, 3]
    assert [(r.reason, r.n) for r in found.rejects][1:] == [("order", 1)]


def test_a_row_without_what_it_needs_is_refused_alone(tmp_path: Path) -> None:
    table = clock_table(4, 1)
    holes = pa.array([1.0, None, 3.0, 4.0])
    table = table.set_column(table.schema.get_field_index("offset_ns"), "offset_ns", holes)
    found = open_recording(foreign(tmp_path / "r", table))
    assert [mark_of(m.body) for m in found.messages()] == [0, 2, 3]
    assert [(r.reason, r.n) for r in found.rejects][1:] == [("null", 1)]


def test_a_column_of_the_wrong_type_or_missing_refuses_the_file_alone(tmp_path: Path) -> None:
    table = clock_table(2)
    wrong = table.set_column(table.schema.get_field_index("at_ns"), "at_ns", pa.array(["x"] * 6))
    for name, other, reason in (
        ("a", wrong, "column-type"),
        ("b", table.drop_columns(["err_ns"]), "column-missing"),
        ("c", table.drop_columns(["bus_at_ns"]), "column-missing"),
    ):
        found = open_recording(foreign(tmp_path / name, other))
        assert list(found.messages()) == []
        assert [r.reason for r in found.rejects][1:] == [reason]


def test_two_hosts_recordings_are_read_as_one(tmp_path: Path) -> None:
    a = [Message(CLOCK.name, "h0", clock_batch(i), START + 2 * i, i) for i in range(3)]
    b = [Message(CLOCK.name, "h1", clock_batch(10 + i), START + 2 * i + 1, i) for i in range(3)]
    found = open_recording(write(tmp_path / "a", a), write(tmp_path / "b", b))
    messages = list(found.messages())
    assert [mark_of(m.body) for m in messages] == [0, 10, 1, 11, 2, 12]
    assert len({(m.topic, m.bus_seq) for m in messages}) == 6
    assert (found.start_at_ns, found.end_at_ns) == (START, START + 5)
