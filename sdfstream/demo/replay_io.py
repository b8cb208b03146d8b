"""The demo where no lab can be made: the recording of a lab through the same stages, scored against its truth."""

from __future__ import annotations

import time
from importlib import resources
from pathlib import Path
from typing import Any

from sdfstream import pipeline, strict_json
from sdfstream.archive.config import REPLAY, ArchiveConfig
from sdfstream.archive.writer_io import Archive
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.bus.recording.writer_io import RecordingWriter
from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING, SHARED
from sdfstream.runtime.replay import replay
from sdfstream.runtime.replay_io import ReplayInput
from sdfstream.score.match import match
from sdfstream.score.report import summary
from sdfstream.settings import Settings


def replay_shipped(data: Path, folder: Path | None = None) -> tuple[dict[str, Any], str]:
    """Replay the shipped recording (or the one in `folder`) into `data`; the outcome as plain JSON, and as text.

    Raises
    ------
    SdfError
        There is no recording, or no truth beside it.
    """
    if folder is not None:
        return _replay(data, folder)
    with resources.as_file(resources.files("sdfstream.demo") / "shipped_recording") as shipped:
        return _replay(data, shipped)


def _replay(data: Path, folder: Path) -> tuple[dict[str, Any], str]:
    recording, faults = open_recording(folder), _faults(folder / "truth" / "faults.jsonl")
    started_s = time.perf_counter()
    archive = Archive.open(ArchiveConfig(target=str(data / "archive"), bus_id="shipped", limits=REPLAY, replay=True))
    writer = RecordingWriter(data / "replayed", cluster=recording.cluster, start_at_ns=recording.start_at_ns)
    stages = pipeline.stages(Settings())
    recorded = ReplayInput(recording, archive, pipeline.WRITTEN - SHARED)
    statements: list[dict[str, Any]] = []
    for message in replay(recorded.messages(), stages, recording.start_at_ns, recording.end_at_ns):
        writer.write([message])
        archive.add_blocking([message])
        if message.topic == FINDING.name and isinstance(message.body, Event):
            statements.append(dict(message.body.data))
    writer.finish(recording.end_at_ns)
    archive.close_blocking()
    took_s = time.perf_counter() - started_s
    card = match(faults, statements).as_dict()
    span_s = (recording.end_at_ns - recording.start_at_ns) / 1e9
    head = f"\nreplayed {recorded.rows:,} rows, {span_s:.0f} s of a lab's probes, in {took_s:.1f} s\n"
    outcome = {
        "mode": "recording",
        "rows": recorded.rows,
        "seconds": round(took_s, 2),
        "faults": faults,
        "outcome": card,
        "findings": statements,
    }
    return outcome, "\n".join((head, summary(card, data=str(data))))


def _faults(path: Path) -> list[dict[str, Any]]:
    try:
        return [strict_json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError, FormatError) as error:
        raise ConfigError(f"the truth beside the recording cannot be read: {error}") from error
