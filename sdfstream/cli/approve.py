"""``sdfstream approve ID``: let a command go that waits for a person; ``--refuse``: forbid it."""

from __future__ import annotations

import argparse
import time

from sdfstream.cli import overrides

HELP = "let a command go that waits for approval (mode approve), or refuse it; waits for the outcome"
EXAMPLE = "sdfstream approve c-7f3a09"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's id; --refuse and what every override takes."""
    parser.add_argument("id", metavar="ID", nargs="+", help="command id, see sdfstream commands")
    parser.add_argument("--refuse", action="store_true", help="forbid it instead")
    overrides.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sign, send, print the outcome; exit 2 without one, or when it is a refusal."""
    by = overrides.hand(args)
    what = "refuse" if args.refuse else "approve"
    made = [overrides.signed(by, what, time.time_ns(), overrides.SHORT_S, command=name) for name in args.id]
    return overrides.finish(args, by, made)
