"""Bodies to bytes and back, and everything that must be refused on the way in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from sdfstream.bus import cloudevents, codec, dead_letters
from sdfstream.bus.conform import size_bytes
from sdfstream.bus.sequences import Numbers, SequenceWatch
from sdfstream.errors import FormatError
from sdfstream.records.message import MOST_KEY, Event, Message, Output
from sdfstream.records.topics import CLOCK, FINDING, NAME, PROBE
from sdfstream.stats import Counters
from sdfstream.sync.intake import Intake
from tests.bus_samples import clock, clock_batch, finding, probe_batch

HEADERS = [("schema", CLOCK.name.encode())]


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def reason_of(value: bytes, headers: list[tuple[str, bytes]] = HEADERS, topic: str = CLOCK.name) -> str:
    with pytest.raises(FormatError) as caught:
        codec.decode(topic, headers, value)
    return caught.value.reason


def with_column(name: str, column: pa.Array) -> pa.RecordBatch:
    batch = clock_batch()
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def test_headers_say_schema_run_and_number() -> None:
    headers, _ = codec.encode(clock(), "boot-1", 7, bus_at_ns=99)
    assert dict(headers) == {
        "schema": b"sdf.state.clock.v1",
        "content-type": b"application/vnd.apache.arrow.stream",
        "boot_id": b"boot-1",
        "batch_seq": b"7",
        "bus_at_ns": b"99",
    }
    headers, _ = codec.encode(finding(), "boot-1", -1)
    assert dict(headers) == {
        "schema": b"sdf.event.finding.v1",
        "content-type": b"application/cloudevents+json; charset=UTF-8",
    }


def test_another_producers_run_and_number_are_passed_on() -> None:
    output = replace(clock(), boot_id="theirs", batch_seq=3)
    decoded = codec.decode(CLOCK.name, *codec.encode(output, "ours", 0))
    assert (decoded.boot_id, decoded.batch_seq, decoded.bus_at_ns) == ("theirs", 3, None)


@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_batch_comes_back_with_its_columns_and_their_units(compression: codec.Compression) -> None:
    sent = probe_batch(500)
    headers, value = codec.encode(Output(PROBE.name, "h00", sent), "b", 0, compression=compression)
    decoded = codec.decode(PROBE.name, headers, value)
    assert decoded.body.equals(sent)
    assert decoded.body.schema.equals(PROBE.columns, check_metadata=True)


def test_polars_reads_the_bytes() -> None:
    _, value = codec.encode(Output(PROBE.name, "h00", probe_batch(50)), "b", 0)
    frame = pl.read_ipc_stream(value)
    assert frame.columns == PROBE.columns.names
    assert frame["src"].cast(str).to_list()[:2] == ["h00/r0", "h00/r1"]
    assert frame["t4_ns"].null_count() > 0


def test_a_large_batch_is_decoded_without_a_copy() -> None:
    headers, value = codec.encode(clock(rows=20_000), "b", 0)
    before = pa.total_allocated_bytes()
    decoded = codec.decode(CLOCK.name, headers, value)
    assert pa.total_allocated_bytes() - before < 1000
    held = np.frombuffer(value, np.uint8).ctypes.data
    body = decoded.body
    assert isinstance(body, pa.RecordBatch)
    assert held < body.column("at_ns").buffers()[1].address < held + len(value)


def test_names_of_a_message_are_whole_in_it() -> None:
    """A slice carries its parent's dictionary; no delta, no replacement travels."""
    _, value = codec.encode(clock(rows=10), "b", 0)
    with pa.ipc.open_stream(value) as reader:
        reader.read_next_batch()
        assert reader.schema.field("clock").type == NAME
        assert reader.stats.num_dictionary_deltas == 0


def test_corrupt_arrow_is_refused() -> None:
    _, value = codec.encode(clock(), "b", 0)
    assert reason_of(b"") == "arrow-corrupt"
    assert reason_of(b"\0" * 64) == "arrow-corrupt"
    assert reason_of(value[:-200]) == "arrow-corrupt"
    assert reason_of(b"x" + value) == "arrow-corrupt"
    assert reason_of(value + b"x") == "arrow-trailing"
    assert reason_of(value + value) == "arrow-trailing"


def test_anything_but_one_batch_is_refused() -> None:
    assert reason_of(stream(clock_batch(), clock_batch())) == "arrow-batches"
    empty = pa.BufferOutputStream()
    pa.ipc.new_stream(empty, CLOCK.columns).close()
    assert reason_of(empty.getvalue().to_pybytes()) == "arrow-batches"
    assert codec.decode(CLOCK.name, HEADERS, stream(clock_batch(rows=0))).body.num_rows == 0  # type: ignore[union-attr]


def test_an_unknown_schema_or_a_bad_header_is_refused() -> None:
    _, value = codec.encode(clock(), "b", 0)
    assert reason_of(value, []) == "schema-missing"
    assert reason_of(value, [("schema", b"sdf.state.clock.v2")]) == "schema-version"
    assert reason_of(value, [("schema", b"\xff")]) == "schema-version"
    assert reason_of(value, HEADERS, "sdf.state.clock.v2") == "topic-unknown"
    assert reason_of(value, [*HEADERS, ("batch_seq", b"-1")]) == "header"
    assert reason_of(value, [*HEADERS, ("batch_seq", b"9" * 30)]) == "header"
    assert reason_of(value, [*HEADERS, ("bus_at_ns", b"soon")]) == "header"
    assert reason_of(value, [*HEADERS, ("boot_id", b"\xff")]) == "header"


@pytest.mark.parametrize("key", ["a\x00b", "\x1b[2J", "k" * (MOST_KEY + 1)])
def test_a_key_that_is_no_name_is_refused(key: str) -> None:
    """A stage takes a key for a host's name, and what it says of it must be read by others."""
    sent, value = codec.encode(clock(), "b", 1)
    with pytest.raises(FormatError, match="key"):
        codec.decode("sdf.state.clock.v1", sent, value, key)
    assert codec.decode("sdf.state.clock.v1", sent, value, "mesh").batch_seq == 1


@pytest.mark.parametrize(
    "header", [("batch_seq", b"9223372036854775808"), ("boot_id", b"b" * 300), ("boot_id", b"\x07")]
)
def test_a_run_or_number_that_no_column_holds_is_refused(header: tuple[str, bytes]) -> None:
    sent, value = codec.encode(clock(), "b", 1)
    with pytest.raises(FormatError, match="header"):
        codec.decode("sdf.state.clock.v1", [*sent, header], value)


def test_columns_that_do_not_fit_are_refused() -> None:
    assert reason_of(stream(clock_batch().drop_columns(["err_ns"]))) == "column-missing"
    assert reason_of(stream(with_column("at_ns", pa.array([1.0, 2.0])))) == "column-type"
    assert reason_of(stream(with_column("n", pa.array([1, 2])))) == "column-type"
    assert reason_of(stream(with_column("clock", pa.array([1, 2])))) == "column-type"
    twice = pa.RecordBatch.from_arrays([*clock_batch().columns, pa.array([1, 2])], [*CLOCK.columns.names, "n"])
    assert reason_of(stream(twice)) == "column-twice"
    assert reason_of(stream(with_column("offset_ns", pa.array([None, None], pa.float64())))) == "null"


def test_a_row_with_a_null_is_left_out_and_counted() -> None:
    decoded = codec.decode(CLOCK.name, HEADERS, stream(with_column("offset_ns", pa.array([None, 5.0]))))
    assert decoded.refused_rows == 1
    assert decoded.body.column("offset_ns").to_pylist() == [5.0]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "names",
    [
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_utf8()),
        pa.array(["a", "b"], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint8()), pa.array(["a", "b"])),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int64()), pa.array(["a", "b"], pa.large_utf8())),
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", "b"]), ordered=True),
    ],
)
def test_names_may_come_in_any_of_arrows_layouts(names: pa.Array) -> None:
    body = codec.decode(CLOCK.name, HEADERS, stream(with_column("clock", names))).body
    assert isinstance(body, pa.RecordBatch)
    assert body.schema.equals(CLOCK.columns)
    assert body.column("clock").to_pylist() == ["a", "b"]


def test_a_null_inside_a_dictionary_is_a_null() -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a", None]))
    decoded = codec.decode(CLOCK.name, HEADERS, stream(with_column("clock", names)))
    assert decoded.refused_rows == 1


def test_an_index_outside_its_dictionary_never_reaches_a_stage() -> None:
    names = pa.DictionaryArray.from_arrays(pa.array([0, 77], pa.int32()), pa.array(["a"]), safe=False)
    assert reason_of(stream(with_column("clock", names))) == "arrow-corrupt"


def test_an_absent_nullable_column_is_null_and_an_unknown_one_ignored() -> None:
    sent = probe_batch(5).drop_columns(["plane", "t2_ns", "seq_rev"]).append_column("later", pa.array(range(5)))
    body = codec.decode(PROBE.name, [("schema", PROBE.name.encode())], stream(sent)).body
    assert isinstance(body, pa.RecordBatch)
    assert body.schema.equals(PROBE.columns)
    assert {body.column(name).null_count for name in ("plane", "t2_ns", "seq_rev")} == {5}
    untyped = probe_batch(5).set_column(body.schema.get_field_index("plane"), "plane", pa.nulls(5))
    assert codec.decode(PROBE.name, [("schema", PROBE.name.encode())], stream(untyped)).body.num_rows == 5  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "json"),
        (b"{", "json"),
        (b"[" * 100_000, "json"),
        (b'{"a": NaN}', "json"),
        (b'{"id":"\\ud800"}', "cloudevent"),
        (b"[]", "cloudevent"),
        (b'{"specversion":"0.3"}', "cloudevent"),
        (b'{"specversion":"1.0","id":"1","source":"s","type":"t"}', "cloudevent"),
        (b'{"specversion":"1.0","id":"","source":"s","type":"t","time":"t","data":{}}', "cloudevent"),
        (b'{"specversion":"1.0","id":"1","source":"s","type":"t","time":"t","data":[]}', "cloudevent"),
        (b'{"specversion":"1.0","id":"1","source":"s","type":"t","time":"noon","data":{}}', "time"),
    ],
)
def test_what_is_no_cloudevent_is_refused(raw: bytes, reason: str) -> None:
    with pytest.raises(FormatError) as caught:
        cloudevents.decode_event(raw)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("text", "at_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500_000_000),
        ("2027-01-15T08:00:00.000000001Z", 1_800_000_000_000_000_001),
        ("2027-01-15T10:00:00.000000001000+02:00", 1_800_000_000_000_000_001),
        ("2027-01-15T04:30:00-03:30", 1_800_000_000_000_000_000),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("9999-12-31T23:59:59Z", 253_402_300_799_000_000_000),
    ],
)
def test_times_of_rfc_3339(text: str, at_ns: int) -> None:
    assert cloudevents.parse_time(text) == at_ns
    assert cloudevents.parse_time(cloudevents.format_time(at_ns)) == at_ns


@pytest.mark.parametrize(
    "text",
    [
        "2027-02-30T00:00:00Z",
        "2027-01-01T23:59:60Z",
        "2027-01-01 00:00:00Z",
        "2027-01-01T00:00:00",
        "2027-01-01T00:00:00.0000000001Z",
        "٢٠٢٧-01-01T00:00:00Z",
        "2027-01-01T00:00:00+24:00",
        "2027-01-01T00:00:00+01:60",
    ],
)
def test_times_that_are_not(text: str) -> None:
    with pytest.raises(FormatError, match="time"):
        cloudevents.parse_time(text)


def test_an_event_that_is_not_plain_json_is_our_own_mistake() -> None:
    event = Event(FINDING.name, "s", "1", 0, {"x": float("nan")})
    with pytest.raises(FormatError, match="unwritable: ValueError"):
        codec.encode(Output(FINDING.name, "k", event), "b", 0)


@pytest.mark.parametrize("broken", [{"t1_ns": None}, {"t4_ns": 1}])
def test_what_a_stage_refuses_can_be_put_on_kafka(broken: dict[str, object]) -> None:
    """Rows that sync refuses once stopped it for good: its letter had no form on Kafka."""
    rows = probe_batch(2).to_pylist()
    body = pa.RecordBatch.from_pylist([{**rows[0], **broken}, rows[1]], schema=_nullable(PROBE.columns))
    intake, out = Intake(10, Counters("sync")), []
    intake.take([Message(PROBE.name, "h", body, 5, 7)], out)
    (dead,) = out
    headers, value = codec.encode(dead, "b", 0, bus_at_ns=5)
    named = dict(headers)
    assert named["dlq_reason"]
    decoded = cloudevents.decode_event(value)
    assert (decoded.data["topic"], decoded.data["bus_seq"]) == (PROBE.name, 7)
    assert codec.decode(dead.topic, headers, value).body == dead.body, "read on Kafka as it is read in process"
    garbage = codec.decode(dead.topic, headers, b"{}").body
    assert garbage.data["reason"] == named["dlq_reason"].decode(), "a value that is no event is quoted"


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([f.with_nullable(True) for f in schema])


def test_a_dead_letter_has_the_bytes_and_the_reason_in_both_directions() -> None:
    why = FormatError("arrow-corrupt", "x" * 1000)
    dead = dead_letters.dead_letter(CLOCK.name, "k", [("schema", b"\xff"), ("a", b"1")], b"\0\xff", why, 55)
    assert dead.topic == CLOCK.dead_letters
    headers, value = codec.encode(dead, "b", 3, bus_at_ns=60)
    assert value == b"\0\xff"
    assert dict(headers) | {"dlq_detail": b""} == {
        "schema": b"\xff",
        "a": b"1",
        "dlq_reason": b"arrow-corrupt",
        "dlq_detail": b"",
        "dlq_time_ns": b"55",
        "bus_at_ns": b"60",
    }
    decoded = codec.decode(dead.topic, headers, value)
    assert decoded.body == dead.body
    assert decoded.bus_at_ns == 60
    assert codec.decode(dead.topic, [], b"theirs").body.data["reason"] == "unknown"  # type: ignore[union-attr]
    with pytest.raises(FormatError, match="dead-letter"):
        codec.encode(Output(dead.topic, "k", Event("t", "s", "i", 0, {"value": "!"})), "b", 0)


def test_numbers_are_per_topic_and_key_and_bounded() -> None:
    numbers = Numbers(max_keys=2)
    assert [numbers.take("t", k) for k in "aabac"] == [0, 1, 0, 2, -1]
    assert numbers.take("u", "c") == 0


def test_gaps_and_repeats_are_distinguished() -> None:
    counters = Counters("bus")
    watch = SequenceWatch(counters, "g", max_streams=2)
    for number in (5, 6, 9, 9, 8, 10, -1):
        watch.see("t", "k", "b", number)
    assert (counters.get("gap", "g:t"), counters.get("repeat", "g:t")) == (2, 2)
    watch.see("t", "k", "new boot", 0)
    watch.see("t", "other key", "b", 3)
    watch.see("t", "k", "b", 50)  # forgotten, thus taken as it comes
    assert counters.get("gap", "g:t") == 2
    watch.forget()
    watch.see("t", "other key", "b", 30)
    assert counters.get("gap", "g:t") == 2


def test_the_size_of_a_batch_is_about_what_arrow_says_and_a_slice_is_small() -> None:
    for batch in (probe_batch(2000), probe_batch(100)):
        assert 0.8 < size_bytes(PROBE.name, batch) / batch.nbytes < 1.3
    assert size_bytes(PROBE.name, probe_batch(2000).slice(0, 10)) < 10_000


@pytest.mark.parametrize("key", ["\x00", "\ufeff", "\n", "k" * (MOST_KEY + 1)])
def test_a_message_refused_for_its_key_has_a_dead_letter_all_the_same(key: str) -> None:
    """Found by the fuzzer on a real broker: the dead letter was refused for the same key, and ended every reader."""
    sent, value = codec.encode(clock(), "b", 1)
    with pytest.raises(FormatError, match="key") as why:
        codec.decode(CLOCK.name, sent, value, key)
    dead = dead_letters.dead_letter(CLOCK.name, key, sent, value, why.value, 5)
    headers, raw = codec.encode(dead, "b", 2, bus_at_ns=5)
    assert (dead.key, raw) == (key, value)
    assert codec.decode(dead.topic, headers, raw, key).body.data["reason"] == "key"  # type: ignore[union-attr]
