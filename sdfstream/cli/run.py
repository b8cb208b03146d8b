"""``sdfstream run``: stages on their own, each a consumer group of a Kafka bus."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from sdfstream.cli.options import add_metrics, add_reference, with_reference
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "run stages of the pipeline against Kafka, each as a consumer group"
EXAMPLE = "sdfstream run sync workload detect --bus kafka://localhost:9092"
STAGES: Final = ("sync", "sync-edge", "sync-mesh", "workload", "detect", "actuate", "plan", "archive")
_SPLIT_SYNC: Final = {"sync-edge", "sync-mesh"}
"""Stages that replace sync where one process does not suffice."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """STAGE…, --bus, --config, --data, --member, --reference, --seconds."""
    parser.add_argument("stages", metavar="STAGE", nargs="+", choices=STAGES, help=f"of {', '.join(STAGES)}")
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the bus (default: the settings' bus)")
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--data", type=Path, help="data folder of an embedded archive (default: ./sdfstream-data)")
    parser.add_argument(
        "--member", metavar="NAME", default="", help="name among the replicas: its restart within 10 s moves no work"
    )
    add_reference(parser)
    add_metrics(parser)
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="end after this long (default: on Ctrl-C or SIGTERM)"
    )


def run(args: argparse.Namespace) -> int:
    """Run until stopped; what was read is dealt with and committed, the rest is left to the group."""
    from logging import INFO

    from sdfstream import settings
    from sdfstream.runtime import logs_io, loop_io
    from sdfstream.serve import stages_io

    logs_io.to_stderr(INFO)
    chosen = with_reference(settings.load(args.config), args)
    named = {"bus": args.bus, "data": args.data}
    chosen = chosen.model_copy(update={name: value for name, value in named.items() if value is not None})
    if chosen.bus == "memory":
        raise ConfigError("run needs --bus kafka://HOST:PORT; the whole pipeline in one process is `sdfstream up`")
    if "sync" in args.stages and _SPLIT_SYNC & set(args.stages):
        raise ConfigError("sync is sync-edge and sync-mesh in one; both at once would tell every clock twice")
    counters = loop_io.run(
        stages_io.run(chosen, list(dict.fromkeys(args.stages)), args.seconds, args.member, args.metrics)
    )
    emit(args.json, {"stages": args.stages, "counters": counters}, "")
    return 0
