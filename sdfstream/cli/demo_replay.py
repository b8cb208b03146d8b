"""The demo where no lab can be made: the recording of one, through the same stages, scored against its truth."""

from __future__ import annotations

import json
import time
from importlib import resources
from pathlib import Path
from typing import Any

from sdfstream import pipeline
from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.writer_io import Archive
from sdfstream.bus.recording_io import RecordingWriter, open_recording
from sdfstream.cli.report import summary
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING
from sdfstream.score.match import match
from sdfstream.settings import Settings


def replay_shipped(data: Path) -> tuple[dict[str, Any], str]:
    """Replay the shipped recording into `data`; returns the outcome as plain JSON, and as text."""
    with resources.as_file(resources.files("sdfstream.cli") / "shipped_recording") as folder:
        recording = open_recording(folder)
        faults = [json.loads(line) for line in (folder / "truth" / "faults.jsonl").read_text().splitlines()]
        statements: list[dict[str, Any]] = []
        rows = 0
        started_s = time.perf_counter()
        archive = Archive.open(ArchiveConfig(target=str(data / "archive"), bus_id="shipped", limits=REPLAY))
        writer = RecordingWriter(data / "replayed", cluster=recording.cluster, start_at_ns=recording.start_at_ns)
        for message in recording.messages():
            rows += message.rows
            archive.add_blocking([message])
        stages = pipeline.stages(Settings())
        for message in pipeline.replay(recording.messages(), stages, recording.start_at_ns, recording.end_at_ns):
            writer.write([message])
            archive.add_blocking([message])
            if message.topic == FINDING.name and isinstance(message.body, Event):
                statements.append(dict(message.body.data))
        writer.finish(recording.end_at_ns)
        archive.close_blocking()
    took_s = time.perf_counter() - started_s
    card = match(faults, statements).as_dict()
    span_s = (recording.end_at_ns - recording.start_at_ns) / 1e9
    head = f"\nreplayed {rows:,} rows, {span_s:.0f} s of a lab's probes, in {took_s:.1f} s\n"
    outcome = {"mode": "recording", "rows": rows, "seconds": round(took_s, 2), "outcome": card, "findings": statements}
    return outcome, "\n".join((head, summary(card, data=str(data))))
