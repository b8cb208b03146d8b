"""Bytes that must not change: what older programs wrote must be read, and what we write must be what it was.

``python -m tests.golden.test_bus_bytes`` writes the files anew; a change of them is a change of the wire.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sdfstream.bus import cloudevents, codec
from sdfstream.bus.link import frames
from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.topics import CLOCK, FINDING, PROBE
from tests.bus_samples import clock_batch, mark_of, probe_batch

HERE = Path(__file__).parent / "bus"

EVENT = Event(FINDING.name, "detect", "f-1/2", 1_800_000_000_123_456_789, {"mark": 1, "ä": [0.5, None, True], "a": ""})
EVENT_BYTES = (
    '{"data":{"a":"","mark":1,"ä":[0.5,null,true]},"datacontenttype":"application/json","id":"f-1/2",'
    '"source":"detect","specversion":"1.0","subject":"f-1","time":"2027-01-15T08:00:00.123456789Z",'
    '"type":"sdf.event.finding.v1"}'
).encode()
LINE = (
    b'{"bus_at_ns":7,"bus_seq":3,"headers":{"batch_seq":4,"boot_id":"b","schema":"sdf.event.finding.v1"},"key":"f-1",'
    b'"value":' + EVENT_BYTES + b"}\n"
)


def made() -> dict[str, bytes]:
    """The golden files as this program writes them."""
    return {
        "clock.arrows": codec.encode(Output(CLOCK.name, "mesh", clock_batch(5, 3)), "b", 0)[1],
        "probe.arrows": codec.encode(Output(PROBE.name, "h00", probe_batch(12)), "b", 0)[1],
        "probe-zstd.arrows": codec.encode(Output(PROBE.name, "h00", probe_batch(12)), "b", 0, compression="zstd")[1],
    }


@pytest.mark.parametrize("name", ["clock.arrows", "probe.arrows", "probe-zstd.arrows"])
def test_arrow_messages_are_these_bytes(name: str) -> None:
    assert (HERE / name).read_bytes() == made()[name]


def test_arrow_messages_of_old_are_read() -> None:
    headers = [("schema", PROBE.name.encode())]
    for name in ("probe.arrows", "probe-zstd.arrows"):
        assert codec.decode(PROBE.name, headers, (HERE / name).read_bytes()).body.equals(probe_batch(12))


def test_an_event_is_these_bytes() -> None:
    assert codec.encode(Output(FINDING.name, "f-1", EVENT), "b", 0)[1] == EVENT_BYTES
    assert cloudevents.decode_event(EVENT_BYTES) == EVENT


def test_a_line_is_these_bytes() -> None:
    message = Message(FINDING.name, "f-1", EVENT, 7, 3, "b", 4)
    assert recording.line(message) == LINE
    assert recording.parse_line(FINDING, LINE) == message


def test_a_frame_is_these_bytes() -> None:
    frame = frames.frame("sdf.x.v1", "h0", [("boot_id", b"b")], b"\x00\xff")
    assert frame == b'\x00\x00\x00\x23\x00\x00\x00\x02["sdf.x.v1","h0",[["boot_id","b"]]]\x00\xff'


def test_link_words_of_both_ways_are_these_bytes() -> None:
    """Version 1 clients and servers meet version 2 ones: none of these may change."""
    assert (frames.MAGIC, frames.MAGIC_V2) == (b"SDFLINK1", b"SDFLINK2")
    assert frames.ACK.pack(7) == b"\0\0\0\0\0\0\0\x07"
    assert frames.ACK.pack(7 | frames.REFUSED) == b"\x80\0\0\0\0\0\0\x07"
    request = frames.SubscribeRequest(("sdf.x.v1",), frozenset({"h1", "h0"}), "run", {"sdf.x.v1": (3,)})
    opening = b'SDFLINK2\0\0\0\x4f{"topics":["sdf.x.v1"],"keys":["h0","h1"],"bus":"run","after":{"sdf.x.v1":[3]}}'
    assert frames.opening(request) == opening
    assert frames.parse_request(opening[12:]) == request
    welcome = frames.Welcome("run", {"sdf.x.v1": (9,)}, {"sdf.x.v1": 2})
    answer = b'\0\0\0\x39{"bus":"run","at":{"sdf.x.v1":[9]},"lost":{"sdf.x.v1":2}}'
    assert frames.welcome(welcome) == answer
    assert frames.parse_welcome(answer[4:]) == welcome
    down = frames.down("sdf.x.v1", "h0", [("boot_id", b"b")], b"\x00\xff", 5, 6)
    head = b'["sdf.x.v1","h0",[["boot_id","b"]],5,6]'
    assert down == b"\x40\0\0\0\0\0\0\0" + b"\0\0\0\x27\0\0\0\x02" + head + b"\x00\xff"
    assert frames.parse_down_head(head) == (("sdf.x.v1", "h0", [("boot_id", b"b")]), 5, 6)


def test_a_recording_of_old_is_read() -> None:
    found = open_recording(HERE / "recording")
    assert [(m.topic, m.bus_at_ns, mark_of(m.body)) for m in found.messages()] == [
        (FINDING.name, 7, 1),
        (CLOCK.name, 8, 5),
        (CLOCK.name, 9, 6),
    ]
    assert (found.start_at_ns, found.end_at_ns, found.cluster, found.rejects) == (5, 20, "golden", [])


def test_a_recording_is_these_bytes(tmp_path: Path) -> None:
    record(tmp_path / "r")
    names = {p.name for p in (HERE / "recording").iterdir()}
    assert {p.name for p in (tmp_path / "r").iterdir()} == names
    for name in names:
        assert (tmp_path / "r" / name).read_bytes() == (HERE / "recording" / name).read_bytes()


def record(directory: Path) -> None:
    """The golden recording."""
    writer = RecordingWriter(directory, cluster="golden", start_at_ns=5)
    writer.write([Message(FINDING.name, "f-1", EVENT, 7, 0, "b", 0)])
    writer.write([Message(CLOCK.name, "mesh", clock_batch(5 + i), 8 + i, i, "b", i) for i in range(2)])
    writer.finish(20)


if __name__ == "__main__":
    for file, raw in made().items():
        (HERE / file).write_bytes(raw)
    record(HERE / "recording")
    sys.exit()
