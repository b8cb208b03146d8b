"""ClickHouse's ``ArrowStream`` reads our messages and our recordings' files unchanged (the engine in process, chDB)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sdfstream.bus import codec
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import PROBE
from tests.bus_samples import probe_batch

COLUMNS = "count(), uniqExact(src), sum(t4_ns IS NULL), min(t1_ns)"


def ask(path: Path) -> list[str]:
    """In a process of its own: a process has but one engine."""
    sql = f"SELECT {COLUMNS} FROM file('{path}', ArrowStream)"
    code = f"import chdb; print(chdb.query({sql!r}, 'TSV'), end='')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.split()


def test_clickhouse_reads_a_message_and_a_recording_whose_names_change(tmp_path: Path) -> None:
    batch = probe_batch(300)
    message = tmp_path / "message.arrows"
    message.write_bytes(codec.encode(Output(PROBE.name, "h00", batch), "b", 0)[1])
    nulls = batch.column("t4_ns").null_count
    assert ask(message) == ["300", "2", str(nulls), str(min(batch.column("t1_ns").to_pylist()))]

    writer = RecordingWriter(tmp_path / "r")
    batches = [probe_batch(9, i, f"h{i}") for i in range(6)]
    writer.write(Message(PROBE.name, f"h{i}", b, i * 10**9, i) for i, b in enumerate(batches))
    writer.finish()
    nulls = sum(b.column("t4_ns").null_count for b in batches)
    first = min(t for b in batches for t in b.column("t1_ns").to_pylist())
    assert ask(tmp_path / "r" / f"{PROBE.name}.arrows") == ["54", "12", str(nulls), str(first)]
