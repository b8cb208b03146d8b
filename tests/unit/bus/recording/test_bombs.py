"""A recording's block, or a spill's record, that would grow beyond its bound is refused before it is decoded."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sdfstream.agent.spill import segment
from sdfstream.bus.recording import format as recording
from sdfstream.bus.recording.file_io import TopicFile
from sdfstream.bus.recording.format import RecordingReject
from sdfstream.errors import FormatError
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK
from tests.bus_samples import clock

ZSTD = pa.ipc.IpcWriteOptions(use_threads=False, compression="zstd")


def block(rows: int = 1) -> pa.RecordBatch:
    builder = recording.BlockBuilder(CLOCK)
    builder.add(Message(CLOCK.name, "mesh", clock(0).body, 5, 0))
    one = builder.flush()
    assert one is not None
    return one.take(pa.array(np.zeros(rows, np.int32)))


def read(path: Path, blocks: list[pa.RecordBatch]) -> tuple[int, list[RecordingReject]]:
    with pa.ipc.new_stream(str(path), blocks[0].schema, options=ZSTD) as writer:
        for one in blocks:
            writer.write_batch(one)
    rejects: list[RecordingReject] = []
    return sum(m.rows for m in TopicFile(path).messages(rejects.append)), rejects


def test_a_block_that_grows_beyond_its_bound_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    path = tmp_path / f"{CLOCK.name}.arrows"
    before = pa.total_allocated_bytes()
    bomb = block(1_500_000)
    rows, rejects = read(path, [block(), bomb])
    assert path.stat().st_size < 1 << 20
    assert rows == 1
    assert [(r.reason, r.where) for r in rejects] == [("arrow-size", "from block 1 on")]
    del bomb
    assert pa.total_allocated_bytes() - before < 32 << 20


def test_an_ordinary_compressed_recording_is_read(tmp_path: Path) -> None:
    rows, rejects = read(tmp_path / f"{CLOCK.name}.arrows", [block(), block(65_536)])
    assert (rows, rejects) == (65_537, [])


def test_a_spilt_record_is_not_compressed_once_more_inside() -> None:
    made = pa.RecordBatch.from_arrays([pa.array(np.zeros(4_000_000, np.int64))], names=["a"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, made.schema, options=ZSTD) as writer:
        writer.write_batch(made)
    body = sink.getvalue().to_pybytes()
    head = json.dumps([CLOCK.name, "k", "b", 1, 4_000_000, True, len(body)]).encode()
    payload = segment._HEAD.pack(len(head)) + head + segment._CODEC.compress(body, asbytes=True)
    record = segment._RECORD.pack(len(payload), zlib.crc32(payload)) + payload
    with pytest.raises(FormatError, match="arrow-size"):
        segment.decode(record)
