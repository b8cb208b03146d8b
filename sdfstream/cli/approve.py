"""``sdfstream approve ID``: let a command go that waits for a person; ``--refuse``: forbid it."""

from __future__ import annotations

import argparse

from sdfstream.cli import edge_io, operator
from sdfstream.serve import overrides_io

HELP = "let a command go that waits for approval (mode approve), or refuse it; waits for the outcome"
EXAMPLE = "sdfstream approve c-7f3a09"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's id; --refuse and the options of every override."""
    parser.add_argument("id", metavar="ID", nargs="+", help="command id, see sdfstream commands")
    parser.add_argument("--refuse", action="store_true", help="forbid it instead")
    operator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sign, send, print the outcome; exit 2 without one, or when it is a refusal."""
    session = operator.session(args)
    what = "refuse" if args.refuse else "approve"
    made = [
        overrides_io.signed(session, what, edge_io.now_ns(), overrides_io.SHORT_S, command=name) for name in args.id
    ]
    return operator.send_and_report(args, session, made)
