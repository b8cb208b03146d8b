"""``sdfstream up``: the pipeline in one process; agents join by a socket, or a lab is built for it."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Final

from sdfstream.cli.options import add_api, add_metrics, add_reference, with_reference
from sdfstream.errors import ConfigError
from sdfstream.records.command import MODES
from sdfstream.runtime.output_io import emit

HELP = "run the pipeline in one process: sync, workload, detect, archive, SQL, live board"
EXAMPLE = "sdfstream up --lab"
OWN_LAB: Final = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--config, --data, --lab, --mode, --reference, --record, --metrics, --seconds."""
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--data", type=Path, help="data folder (default: ./sdfstream-data)")
    parser.add_argument(
        "--lab",
        nargs="?",
        const=OWN_LAB,
        metavar="NAME",
        help="measure the lab of that name that `sdfstream lab up` started; without NAME one of its own",
    )
    parser.add_argument("--mode", choices=("off", *MODES), help="of the guarded loop (default: settings, dry-run)")
    add_reference(parser)
    parser.add_argument("--record", type=Path, metavar="DIR", help="also keep everything on the bus as a recording")
    add_metrics(parser)
    add_api(parser)
    parser.add_argument(
        "--wrong-clocks",
        type=int,
        metavar="SEED",
        help="with --lab: every host's clock off by another ±ns, ±10 ppm, and walking; the truth of it in DATA/truth",
    )
    parser.add_argument("--seconds", type=float, help="end after this long (default: at SIGINT or SIGTERM)")


def run(args: argparse.Namespace) -> int:
    """Run until stopped."""
    from sdfstream import settings
    from sdfstream.demo import up_io
    from sdfstream.runtime import loop_io

    chosen = with_reference(settings.load(args.config), args)
    if args.data is not None:
        chosen = chosen.model_copy(update={"data": args.data})
    if args.api is not None:
        chosen = chosen.model_copy(update={"api": args.api})
    if args.mode is not None:
        chosen = chosen.model_copy(update={"actuate": replace(chosen.actuate, mode=args.mode)})
    if args.wrong_clocks is not None and args.lab is None:
        raise ConfigError("--wrong-clocks needs --lab: only a lab's clocks may be wrong on purpose")
    counters = loop_io.run(
        up_io.run(
            chosen,
            lab=args.lab,
            record=args.record,
            seconds=args.seconds,
            wrong_clocks=args.wrong_clocks,
            metrics=args.metrics,
        )
    )
    emit(args.json, {"counters": counters, "data": str(chosen.data)}, "")
    return 0
