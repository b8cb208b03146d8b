"""Laws of recordings: bytes depend on messages alone, reading on content alone, and damage costs only what it hit."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.bus.recording.format import BLOCK_NS, PREFIX, BlockBuilder, block_schema, split
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Message
from sdfstream.records.topics import CLOCK, FINDING
from tests.bus_samples import clock_batch, finding, mark_of
from tests.property.test_bus_codec_property import damaged

STEPS = st.lists(st.tuples(st.integers(0, BLOCK_NS), st.integers(1, 5)), min_size=1, max_size=30)


def messages_of(steps: list[tuple[int, int]]) -> list[Message]:
    """Clock messages with the given pauses and rows."""
    at = np.cumsum([pause for pause, _ in steps])
    return [
        Message(CLOCK.name, f"k{i % 3}", clock_batch(i, rows), int(at[i]), i, f"b{i % 2}", i)
        for i, (_, rows) in enumerate(steps)
    ]


def values_of(messages: list[Message]) -> list[tuple[object, ...]]:
    return [
        (m.key, m.bus_at_ns, m.bus_seq, m.boot_id, m.batch_seq, m.body.to_pylist())  # type: ignore[union-attr]
        for m in messages
    ]


def blocks_of(messages: list[Message]) -> list[pa.RecordBatch]:
    builder = BlockBuilder(CLOCK)
    blocks = [builder.add(m) for m in messages] + [builder.flush()]
    return [b for b in blocks if b is not None]


@given(STEPS)
def test_blocks_hold_what_was_put_in(steps: list[tuple[int, int]]) -> None:
    sent = messages_of(steps)
    blocks = blocks_of(sent)
    found = [m for b in blocks for m in split(CLOCK, b, (-1, 0)).messages]
    assert values_of(found) == values_of(sent)
    for block in blocks:
        assert block.schema.equals(block_schema(CLOCK))
        seconds = block.column("bus_at_ns").to_numpy() // BLOCK_NS
        assert (seconds == seconds[0]).all()


@given(STEPS, st.data())
@settings(max_examples=30, deadline=None)
def test_a_file_reads_the_same_however_its_blocks_are_cut(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    sent = messages_of(steps)
    table = pa.Table.from_batches(blocks_of(sent)).unify_dictionaries().combine_chunks()
    cuts = data.draw(st.sets(st.integers(0, len(table)), max_size=6))
    edges = sorted({0, len(table), *cuts})
    folder = tmp_path_factory.mktemp("r")
    with (
        (folder / f"{CLOCK.name}.arrows").open("wb") as out,
        pa.ipc.new_stream(out, table.schema) as writer,
    ):
        for a, b in pairwise(edges):
            writer.write_table(table.slice(a, b - a))
    found = open_recording(folder)
    assert values_of(list(found.messages())) == values_of(sent)
    assert [r.reason for r in found.rejects] == ["missing"]
    shutil.rmtree(folder)


@given(STEPS, st.data())
@settings(max_examples=30, deadline=None)
def test_bytes_do_not_depend_on_how_messages_are_handed_over(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]], data: st.DataObject
) -> None:
    sent = messages_of(steps)
    folder = tmp_path_factory.mktemp("r")
    cut = data.draw(st.integers(0, len(sent)))
    for name, batches in (("a", [sent]), ("b", [sent[:cut], sent[cut:]])):
        writer = RecordingWriter(folder / name)
        for batch in batches:
            writer.write(batch)
        writer.finish()
    for path in (folder / "a").iterdir():
        assert path.read_bytes() == (folder / "b" / path.name).read_bytes()
    shutil.rmtree(folder)


@pytest.mark.parametrize("compression", ["zstd", None])
def test_fuzz_of_a_recording(tmp_path: Path, compression: str | None) -> None:
    """Damage anywhere: no exception, no message that was not written or not changed, the others of it read."""
    rng = np.random.default_rng(20261123)
    writer = RecordingWriter(tmp_path / "whole", compression=compression)  # type: ignore[arg-type]
    writer.write(Message(CLOCK.name, "k", clock_batch(i, 3), i * BLOCK_NS, i) for i in range(6))
    writer.write(Message(FINDING.name, f"f{i}", finding(i).body, i * BLOCK_NS, i) for i in range(6))
    writer.finish()
    read = rejected = 0
    for _ in range(150):
        folder = tmp_path / "hurt"
        shutil.copytree(tmp_path / "whole", folder)
        path = folder / str(rng.choice([f"{CLOCK.name}.arrows", f"{FINDING.name}.jsonl"]))
        path.write_bytes(damaged(rng, path.read_bytes()))
        found = open_recording(folder)
        other = FINDING.name if path.suffix == ".arrows" else CLOCK.name
        messages = list(found.messages())
        assert [mark_of(m.body) for m in messages if m.topic == other] == list(range(6))
        order = [(m.bus_at_ns, m.topic, m.bus_seq) for m in messages]
        assert order == sorted(order)
        read += len(messages) - 6
        rejected += bool(found.rejects)
        shutil.rmtree(folder)
    assert read > 100
    assert rejected > 100


def test_the_prefix_is_the_contracts() -> None:
    assert PREFIX.names == ["bus_at_ns", "bus_seq", "bus_key", "boot_id", "batch_seq"]
    assert (PREFIX.field(0).type, PREFIX.field(1).type) == (pa.int64(), pa.uint64())
