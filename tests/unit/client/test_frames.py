from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pyarrow as pa

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.client.choice import Choice
from sdfstream.client.frames import frames, schema_of
from sdfstream.records.message import Event, Message
from sdfstream.records.topics import LIVENESS, PROBE, TOPICS

SHIPPED = Path(__file__).parents[3] / "sdfstream" / "demo" / "shipped_recording"


def test_the_shipped_probes_as_frames_are_the_recordings_rows() -> None:
    recording = open_recording(SHIPPED)
    found = pl.concat(list(frames(PROBE, recording.messages({PROBE.name}), Choice())))
    with pa.memory_map(str(SHIPPED / f"{PROBE.name}.arrows")) as source:
        theirs = pl.from_arrow(pa.ipc.open_stream(source).read_all())
    assert isinstance(theirs, pl.DataFrame)
    assert found.height == theirs.height
    assert found.schema == schema_of(PROBE)
    columns = ["bus_at_ns", "bus_seq", "src", "dst", "seq", "t1_ns", "t4_ns"]
    assert found.select(columns).equals(theirs.select(columns).with_columns(pl.col("src", "dst").cast(pl.String)))


def test_every_topics_frames_have_one_schema_without_categories() -> None:
    for topic in TOPICS.values():
        assert pl.Categorical not in schema_of(topic).values(), topic.name


def test_a_choice_of_rows_is_the_filter_of_all_rows() -> None:
    recording = open_recording(SHIPPED)
    everything = pl.concat(list(frames(PROBE, recording.messages({PROBE.name}), Choice())))
    middle_ns = (recording.start_at_ns + recording.end_at_ns) // 2
    choice = Choice(middle_ns, None, nics=("h01/r0",))
    chosen = pl.concat(list(frames(PROBE, recording.messages({PROBE.name}), choice)))
    named = (pl.col("src") == "h01/r0") | (pl.col("dst") == "h01/r0")
    assert chosen.equals(everything.filter(named & (pl.col("bus_at_ns") >= middle_ns)))
    assert 0 < chosen.height < everything.height


def test_an_event_is_a_row_with_its_payload_as_json() -> None:
    data = {"complete": True, "paths": [{"src": "h00/r0"}]}
    message = Message(LIVENESS.name, "h00", Event("type", "h00", "id-1", 7, data), 9, 3, "boot", -1)
    other = Message(LIVENESS.name, "h01", Event("type", "h01", "id-2", 7, {"paths": []}), 10, 4, "boot", 5)
    (frame,) = frames(LIVENESS, [message, other], Choice(nics=("h00/r0",)))
    assert frame.schema == schema_of(LIVENESS)
    row = frame.row(0, named=True)
    assert frame.height == 1
    assert json.loads(row.pop("data")) == data
    assert row == {
        "bus_at_ns": 9, "bus_seq": 3, "bus_key": "h00", "boot_id": "boot", "batch_seq": None,
        "event_id": "id-1", "event_type": "type", "event_source": "h00", "event_time_ns": 7,
    }  # fmt: skip
