"""``sdfstream switches``: counters of switches from gnmic's topic onto the bus."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any, Final

from sdfstream.cli.options import add_metrics
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "bring switches' port counters in: read what gnmic writes to Kafka, publish it as rows of sdf.raw.port.v1"
EXAMPLE = "sdfstream switches --bus kafka://localhost:9092 --topic gnmic"
_KAFKA: Final = "kafka://"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""What Kafka takes as a topic's name."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--bus, --topic, --source, --from-start, --config, --metrics, --seconds."""
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument(
        "--topic", default="gnmic", metavar="NAME", help="topic that gnmic writes to, format event (default: gnmic)"
    )
    parser.add_argument(
        "--source", metavar="kafka://HOST:PORT", help="brokers of that topic (default: those of the bus)"
    )
    parser.add_argument(
        "--from-start", action="store_true", help="begin with the oldest message there, where none was read before"
    )
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    add_metrics(parser)
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end after this long (default: on Ctrl-C or SIGTERM)"
    )


def run(args: argparse.Namespace) -> int:
    """Read and publish until stopped; each row goes out at least once."""
    from logging import INFO

    from sdfstream import settings
    from sdfstream.runtime import logs_io, loop_io
    from sdfstream.runtime.switches_io import feed

    logs_io.to_stderr(INFO)
    chosen = settings.load(args.config)
    bus = args.bus or chosen.bus
    if not bus.startswith(_KAFKA):
        raise ConfigError("switches needs --bus kafka://HOST:PORT: gnmic and the pipeline meet on Kafka")
    if not _TOPIC.fullmatch(args.topic) or args.topic.startswith("sdf."):
        raise ConfigError(f"--topic is '{args.topic}'; it must be the name of gnmic's topic, none of ours (sdf.…)")
    result = loop_io.run(
        feed(
            bus,
            chosen.kafka,
            args.topic,
            source=args.source,
            from_start=args.from_start,
            seconds=args.seconds,
            metrics=args.metrics,
        )
    )
    emit(args.json, result, _text(result))
    return 0


def _text(result: dict[str, Any]) -> str:
    mark = ("refused", "shed", "restarted", "unreadable")
    odd = {name: n for name, n in result["counters"].items() if set(mark) & set(name.split("."))}
    lines = [f"{result['rows']:,} rows of {result['messages']:,} messages in {result['seconds']:.0f} s"]
    if odd:
        lines.append("refused or lost: " + ", ".join(f"{name} {n}" for name, n in odd.items()))
    return "\n".join(lines)
