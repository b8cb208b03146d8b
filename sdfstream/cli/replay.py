"""``sdfstream replay``: the same stages over a recording, as fast as the machine allows."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream.cli.output import emit, progress
from sdfstream.errors import ConfigError

if TYPE_CHECKING:
    from sdfstream.pipeline import Stage
    from sdfstream.records.message import Message

HELP = "run stages over a recording; the same input gives the same bytes"
EXAMPLE = "sdfstream replay sdfstream-data/recording --out replayed --stages sync,detect"
STAGES = ("sync", "detect", "archive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """IN, --out, --stages, --config."""
    parser.add_argument("recording", type=Path, metavar="IN", help="folder of the recording")
    parser.add_argument("--out", type=Path, required=True, metavar="OUT", help="new folder for what the stages write")
    parser.add_argument("--stages", default="sync,detect", help=f"comma-separated, of {', '.join(STAGES)}")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")


def run(args: argparse.Namespace) -> int:
    """Replay and say what came of it."""
    from sdfstream import pipeline, settings
    from sdfstream.bus.recording import open_recording
    from sdfstream.bus.recording_io import RecordingWriter

    wanted = [name.strip() for name in args.stages.split(",") if name.strip()]
    if unknown := [name for name in wanted if name not in STAGES]:
        raise ConfigError(f"--stages: no stage '{unknown[0]}'; there are {', '.join(STAGES)}")
    if args.out.exists() and any(args.out.iterdir()):
        raise ConfigError(f"--out {args.out} is not empty; name a new folder")
    chosen = settings.load(args.config)
    recording = open_recording(args.recording)
    stages = [stage for stage in pipeline.stages(chosen) if stage.name in wanted]
    archive = _archive(args.out, chosen) if "archive" in wanted else None
    written: Counter[str] = Counter()
    read = 0
    started_s = time.perf_counter()

    def counted() -> Any:
        nonlocal read
        for message in recording.messages():
            read += message.rows
            if archive is not None:
                archive.take([message])
            yield message

    args.out.mkdir(parents=True, exist_ok=True)
    with RecordingWriter(
        args.out, cluster=recording.cluster, start_at_ns=recording.start_at_ns, end_at_ns=recording.end_at_ns
    ) as writer:
        for message in pipeline.replay(counted(), stages, recording.start_at_ns, recording.end_at_ns):
            writer.write([message])
            written[message.topic] += message.rows
            if archive is not None:
                archive.take([message])
    if archive is not None:
        archive.close()
    took_s = time.perf_counter() - started_s
    counters = _counters(stages, recording)
    emit(
        args.json,
        {"read": read, "written": dict(written), "counters": counters, "seconds": round(took_s, 3)},
        _text(args.out, read, written, counters, took_s),
    )
    return 0
