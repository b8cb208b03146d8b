"""``sdfstream play``: a recording's agents, as if they spoke now."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any

from sdfstream.cli.options import add_metrics
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "publish what a recording's agents said as if they said it now; the pipeline on that bus works on it"
EXAMPLE = "sdfstream play --bus kafka://localhost:9092 --loop"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """[IN], --bus, --config, --loop, --speed, --metrics, --seconds."""
    parser.add_argument(
        "recording",
        type=Path,
        metavar="IN",
        nargs="*",
        help="folder of a recording, several hosts' as one (default: the one shipped with the program)",
    )
    parser.add_argument("--bus", metavar="kafka://HOST:PORT|link:PATH", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--loop", action="store_true", help="at its end begin anew, as agents that were restarted")
    parser.add_argument(
        "--speed",
        type=float,
        default=1.0,
        metavar="X",
        help="that much faster (default 1); delays stay what they were, rates and the drift of clocks grow",
    )
    add_metrics(parser)
    parser.add_argument("--seconds", type=float, metavar="N", help="end after this long")


def run(args: argparse.Namespace) -> int:
    """Play until the end, or until stopped."""
    from logging import INFO

    from sdfstream import pipeline, settings
    from sdfstream.bus.recording import playback
    from sdfstream.bus.recording.reader_io import open_recording
    from sdfstream.runtime import logs_io, loop_io
    from sdfstream.runtime.play_io import play

    logs_io.to_stderr(INFO)
    if not 0.01 <= args.speed <= 1000:
        raise ConfigError(f"--speed is {args.speed:g}; it must be from 0.01 to 1000")
    chosen = settings.load(args.config)
    bus = args.bus or chosen.bus
    if not bus.startswith(("kafka://", "link:")):
        raise ConfigError("play needs --bus kafka://HOST:PORT, or link:PATH of a running `sdfstream up`")
    with ExitStack() as stack:
        folders = args.recording or [
            stack.enter_context(resources.as_file(resources.files("sdfstream.demo") / "shipped_recording"))
        ]
        recording = open_recording(*folders)
        topics = [t for t in playback.agents_topics(pipeline.WRITTEN) if t in recording.topics]
        if not topics:
            raise ConfigError(f"{folders[0]} holds nothing that agents said")
        result = loop_io.run(
            play(
                recording,
                topics,
                bus,
                chosen.kafka,
                folders[0],
                speed=args.speed,
                loop=args.loop,
                metrics=args.metrics,
                seconds=args.seconds,
            )
        )
    emit(args.json, result, _text(result))
    return 0


def _text(result: dict[str, Any]) -> str:
    return (
        f"played {result['messages']:,} messages ({result['rows']:,} rows) in {result['seconds']:.0f} s, "
        f"{result['passes']} whole passes"
    )
