"""``sdfstream undo``: take commands back before their leases end."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream.cli import edge_io, operator
from sdfstream.errors import ConfigError
from sdfstream.serve import overrides_io

HELP = "take back a command, a job's commands, or all of them; waits for the outcome"
EXAMPLE = "sdfstream undo --job train-7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """An id, --job or --all; and the options of every override."""
    parser.add_argument("id", metavar="ID", nargs="*", help="command id, see sdfstream commands")
    parser.add_argument("--job", help="everything in force for this job")
    parser.add_argument("--all", action="store_true", help="everything in force")
    operator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sign, send, print the outcomes; exit 2 without one, or when one is a refusal."""
    from sdfstream.runtime.output_io import emit, progress

    if sum((bool(args.id), args.job is not None, args.all)) != 1:
        raise ConfigError("name command ids, or give --job JOB, or --all")
    session = operator.session(args)
    ids = args.id or _in_force(args)
    if not ids:
        emit(args.json, {"overrides": []}, "nothing is in force" + (f" for job {args.job}" if args.job else ""))
        return 0
    if not args.id:
        progress("the loop may act again on what it sees; to keep it off: sdfstream policy mode observe")
    made = [overrides_io.signed(session, "undo", edge_io.now_ns(), overrides_io.SHORT_S, command=name) for name in ids]
    return operator.send_and_report(args, session, made)


def _in_force(args: argparse.Namespace) -> list[str]:
    from sdfstream.serve.query_io import fetch

    if args.bus is not None:
        raise ConfigError("--job and --all ask the pipeline what is in force; with --bus name the command ids")
    known = fetch(Path(args.data), {"want": "commands", "job": args.job})["commands"]
    return [c["id"] for c in known if c.get("in_force") and c["action"] not in ("undo", "failback")]
