"""Laws of the codec: what goes in comes out, and nothing else than a reason ever comes out of what did not go in."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus import cloudevents, codec, dead_letters
from sdfstream.bus.conform import conform, conforms
from sdfstream.bus.link import frames
from sdfstream.bus.recording import format as recording
from sdfstream.errors import FormatError
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import CLOCK, FINDING, NAME, PORT, PROBE
from tests.bus_samples import clock, finding, probe_batch

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)
PRINTABLE = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
LEAF = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
JSON = st.recursive(LEAF, lambda x: st.lists(x, max_size=4) | st.dictionaries(TEXT, x, max_size=4), max_leaves=20)
YEAR_1_NS, YEAR_9999_NS = -62_135_596_800_000_000_000, 253_402_300_799_999_999_999
EVENTS = st.builds(
    Event,
    type=PRINTABLE,
    source=PRINTABLE,
    id=PRINTABLE,
    time_ns=st.integers(0, 1 << 62),
    data=st.dictionaries(TEXT, JSON, max_size=5),
)


@st.composite
def batches(draw: st.DrawFn, schema: pa.Schema) -> pa.RecordBatch:
    """Any batch that fits `schema`, nulls where they may be."""
    rows = draw(st.integers(0, 12))
    arrays = []
    for field in schema:
        if field.type == NAME:
            cell: st.SearchStrategy[object] = st.sampled_from(["", "h00/r0", "ä", "gpu-17/mlx5_2:1"])
        elif pa.types.is_floating(field.type):
            cell = st.floats(-(2.0**62), 2.0**62, width=field.type.bit_width)
        elif (field.metadata or {}).get(b"unit", b"").startswith(b"ns since epoch"):
            cell = st.integers(0, 1 << 62)
        else:
            info = np.iinfo(field.type.to_pandas_dtype())
            cell = st.integers(int(info.min), int(info.max))
        cell = st.none() | cell if field.nullable else cell
        arrays.append(pa.array(draw(st.lists(cell, min_size=rows, max_size=rows)), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@given(EVENTS, TEXT)
def test_events_come_back_and_are_canonical(event: Event, subject: str) -> None:
    raw = cloudevents.encode_event(event, subject)
    assert cloudevents.decode_event(raw) == event
    assert cloudevents.encode_event(cloudevents.decode_event(raw), subject) == raw
    assert cloudevents.canonical(json.loads(raw)) == raw


@given(st.integers(YEAR_1_NS, YEAR_9999_NS))
def test_times_come_back_and_sort_as_text(at_ns: int) -> None:
    text = cloudevents.format_time(at_ns)
    assert cloudevents.parse_time(text) == at_ns
    later = min(at_ns + 1, YEAR_9999_NS)
    assert text <= cloudevents.format_time(later)


@given(st.data(), st.sampled_from([PROBE, PORT, CLOCK]), st.sampled_from([None, "zstd"]))
@settings(max_examples=60)
def test_batches_come_back(data: st.DataObject, topic: object, compression: codec.Compression) -> None:
    sent = data.draw(batches(topic.columns))  # type: ignore[attr-defined]
    output = Output(topic.name, "k", sent)  # type: ignore[attr-defined]
    decoded = codec.decode(output.topic, *codec.encode(output, "b", 1, compression=compression))
    assert decoded.body.equals(sent)
    assert conforms(output.topic, decoded.body)  # type: ignore[arg-type]
    assert decoded.refused_rows == 0


@given(st.data())
@settings(max_examples=40)
def test_order_of_columns_layout_of_names_and_columns_of_others_change_nothing(data: st.DataObject) -> None:
    sent = data.draw(batches(PROBE.columns))
    columns = dict(zip(sent.schema.names, sent.columns, strict=True))
    for name in data.draw(st.sets(st.sampled_from([f.name for f in PROBE.columns if f.type == NAME]))):
        columns[name] = columns[name].cast(data.draw(st.sampled_from([pa.utf8(), pa.large_utf8()])))
    dropped = data.draw(st.sets(st.sampled_from([f.name for f in PROBE.columns if f.nullable])))
    order = data.draw(st.permutations([*(n for n in columns if n not in dropped), "theirs"]))
    columns["theirs"] = pa.nulls(sent.num_rows)
    found, refused = conform(PROBE.columns, pa.record_batch([columns[n] for n in order], names=order))
    assert refused == 0
    expected = sent.to_pydict() | {name: [None] * sent.num_rows for name in dropped}
    assert found.to_pydict() == expected


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_rows_with_nulls_are_left_out_one_by_one(holes: list[bool]) -> None:
    batch = clock(rows=len(holes)).body
    assert isinstance(batch, pa.RecordBatch)
    column = pa.array([None if hole else 1.0 for hole in holes], pa.float64())
    punched = batch.set_column(batch.schema.get_field_index("err_ns"), "err_ns", column)
    if all(holes):
        with pytest.raises(FormatError, match="null"):
            conform(CLOCK.columns, punched)
        return
    found, refused = conform(CLOCK.columns, punched)
    assert refused == sum(holes)
    assert found.column("at_ns").to_pylist() == [i for i, hole in enumerate(holes) if not hole]


@given(TEXT, TEXT, st.lists(st.tuples(TEXT, TEXT.map(str.encode)), max_size=4), st.binary(max_size=50))
def test_frames_come_back(topic: str, key: str, headers: list[tuple[str, bytes]], payload: bytes) -> None:
    raw = frames.frame(topic, key, headers, payload)
    at = frames.LENGTHS.size
    head, size = frames.parse_lengths(raw[:at], 1000)
    assert frames.parse_head(raw[at : at + head]) == (topic, key, headers)
    assert raw[at + head :] == payload
    assert len(payload) == size


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_dead_letters_come_back(header: bytes, value: bytes) -> None:
    why = FormatError("arrow-corrupt", "detail")
    dead = dead_letters.dead_letter(CLOCK.name, "k", [("schema", header)], value, why, 7)
    assert codec.decode(dead.topic, *codec.encode(dead, "b", 0)).body == dead.body


def damaged(rng: np.random.Generator, whole: bytes) -> bytes:
    """`whole` with some bits flipped, bytes replaced, a length forged, or its end missing."""
    raw = bytearray(whole)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(raw)))
        match rng.integers(3):
            case 0:
                raw[at] ^= 1 << int(rng.integers(8))
            case 1:
                raw[at : at + 4] = rng.bytes(4)
            case _:
                at -= at % 4
                raw[at : at + 4] = int(rng.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])).to_bytes(4, "little")
    return bytes(raw[: rng.integers(len(raw))] if rng.random() < 0.1 else raw)


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_fuzz_of_the_arrow_decoder(compression: codec.Compression) -> None:
    """Flipped bits become a reason or another valid batch, never an exception of another kind."""
    rng = np.random.default_rng(20261121)
    headers, whole = codec.encode(Output(PROBE.name, "h", probe_batch(40)), "b", 0, compression=compression)
    refused = 0
    for _ in range(1500):
        try:
            codec.decode(PROBE.name, headers, damaged(rng, whole)).body.to_pylist()  # type: ignore[union-attr]
        except FormatError:
            refused += 1
    assert refused > 500


def test_fuzz_of_the_event_the_line_and_the_head() -> None:
    rng = np.random.default_rng(20261122)
    event = cloudevents.encode_event(finding(1).body)  # type: ignore[arg-type]
    line = b'{"bus_at_ns":5,"bus_seq":0,"key":"k","headers":{"schema":"sdf.event.finding.v1"},"value":' + event + b"}"
    head = frames.frame(FINDING.name, "k", [("schema", b"x")], b"")[8:]
    refused = 0
    for _ in range(3000):
        for read, whole in (
            (cloudevents.decode_event, event),
            (lambda raw: recording.parse_line(FINDING, raw), line),
            (frames.parse_head, head),
        ):
            try:
                read(damaged(rng, whole))  # type: ignore[operator]
            except FormatError:
                refused += 1
    assert refused > 5000
