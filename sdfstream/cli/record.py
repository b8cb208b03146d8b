"""``sdfstream record``: everything on a bus, kept as a recording."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sdfstream import visible
from sdfstream.runtime.output_io import emit

HELP = "record everything on a Kafka bus, for sdfstream replay (a pipeline in one process: sdfstream up --record)"
EXAMPLE = "sdfstream record --bus kafka://localhost:9092 --out recording --seconds 60"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--bus, --config, --out, --seconds, --from-start, --cluster."""
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML), for its kafka part")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="new folder for the recording")
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end after this long (default: on Ctrl-C or SIGTERM)"
    )
    parser.add_argument(
        "--from-start", action="store_true", help="begin with the oldest message the brokers still have"
    )
    parser.add_argument("--cluster", default="", help="the cluster's name, written into the recording")


def run(args: argparse.Namespace) -> int:
    """Record until stopped."""
    from logging import INFO

    from sdfstream import settings
    from sdfstream.errors import ConfigError
    from sdfstream.runtime import logs_io, loop_io
    from sdfstream.runtime.record_io import record_bus

    logs_io.to_stderr(INFO)
    chosen = settings.load(args.config)
    name = args.bus or chosen.bus
    if name == "memory":
        raise ConfigError(
            "give --bus kafka://HOST:PORT; a bus in memory is its own process's alone, and recorded with "
            "`sdfstream up --record DIR`"
        )
    result = loop_io.run(
        record_bus(name, chosen.kafka, args.out, args.cluster, args.seconds, from_start=args.from_start)
    )
    emit(args.json, result, _text(result))
    return 0


def _text(result: dict[str, Any]) -> str:
    counters = result["counters"]
    odd = {name: n for name, n in counters.items() if {"refused", "lost", "gap", "restarted"} & set(name.split("."))}
    lines = [f"{result['rows']:,} rows in {result['seconds']:.0f} s, in {result['recording']}"]
    if odd:
        lines.append("refused or lost: " + ", ".join(f"{name} {n}" for name, n in odd.items()))
    lines.append(f"next: sdfstream replay {result['recording']} --out DIR")
    return visible.lines(lines)
