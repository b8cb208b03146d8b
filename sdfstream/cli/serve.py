"""``sdfstream serve``: read a Kafka bus, and answer the verbs and the read API; writes nothing to the bus."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream.cli.options import add_api, add_metrics
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "read a Kafka bus and answer: read API, and top, status, findings, why, commands; writes nothing to the bus"
EXAMPLE = "sdfstream serve --bus kafka://localhost:9092"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--bus, --config, --data, --api, --metrics, --seconds."""
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML); its archive answers for the past")
    parser.add_argument("--data", type=Path, help="folder of its socket and tokens (default: ./sdfstream-data)")
    add_api(parser)
    add_metrics(parser)
    parser.add_argument("--seconds", type=float, metavar="N", help="end after this long (default: at SIGINT, SIGTERM)")


def run(args: argparse.Namespace) -> int:
    """Run until stopped."""
    from sdfstream import settings

    chosen = settings.load(args.config)
    named = {"bus": args.bus, "data": args.data, "api": args.api}
    chosen = chosen.model_copy(update={name: value for name, value in named.items() if value is not None})
    if not chosen.bus.startswith("kafka://"):
        raise ConfigError("serve needs --bus kafka://HOST:PORT; `sdfstream up` answers for its own bus")
    from sdfstream.runtime import loop_io
    from sdfstream.serve import reader_process_io

    counters = loop_io.run(reader_process_io.run(chosen, args.seconds, args.metrics))
    emit(args.json, {"counters": counters}, "")
    return 0
