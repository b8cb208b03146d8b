"""The commands a person types; every verb is one module of this package, loaded only when it is called.

A verb module has `HELP` (one line), `EXAMPLE` (a command that works), ``add_arguments(parser)`` and
``run(args) -> int``. Exit codes: 0 it ran; 1 only from verbs that check something; 2 it could not run, with a reason.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from sdfstream import __version__
from sdfstream.errors import SdfError
from sdfstream.runtime import allocators, logs_io
from sdfstream.runtime.output_io import complain

VERBS: Final[dict[str, str]] = {
    # verb: module of this package; the order is the order of the help page
    "demo": "demo",
    "up": "up",
    "agent": "agent",
    "run": "run",
    "serve": "serve",
    "topics": "topics",
    "record": "record",
    "health": "health",
    "doctor": "doctor",
    "status": "status",
    "top": "top",
    "findings": "findings",
    "why": "why",
    "topo": "topo",
    "commands": "commands",
    "approve": "approve",
    "undo": "undo",
    "policy": "policy",
    "silence": "notes.silence",
    "label": "notes.label",
    "plan": "plan",
    "clock": "clock",
    "rdma": "rdma",
    "token": "token",
    "archive": "archive",
    "sql": "sql",
    "export": "export",
    "play": "play",
    "cabling": "feeds.cabling",
    "switches": "feeds.switches",
    "replay": "replay",
    "score": "score",
    "twin": "twin",
    "lab": "lab",
    "config": "config",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    allocators.configure()
    logs_io.to_stderr(logging.WARNING)
    if argv is None:  # the process is this program alone
        logs_io.log_defects()
    args = list(sys.argv[1:] if argv is None else argv)
    verb = next((a for a in args if not a.startswith("-")), None)
    parser = _parser(only=verb if verb in VERBS else None)
    parsed = parser.parse_args(args)
    try:
        code: int = parsed.run(parsed)
    except SdfError as error:
        complain(f"sdfstream {parsed.verb}: {error}")
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "sdfstream":
            raise
        complain(
            f"sdfstream {parsed.verb}: needs {error.name}, which is not installed (an agent's package has no archive)"
        )
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    return code


def _parser(only: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sdfstream",
        description="The open software-driven fabric for AI clusters.",
        epilog="Start with: sdfstream demo",
    )
    parser.add_argument("--version", action="version", version=f"sdfstream {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    for verb in [only] if only else VERBS:
        module = _load(verb)
        sub = verbs.add_parser(
            verb,
            help=module.HELP,
            description=module.HELP,
            epilog=f"example: {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("--json", action="store_true", help="one compact JSON object as the last line on stdout")
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    return parser


def _load(verb: str) -> ModuleType:
    return importlib.import_module(f"sdfstream.cli.{VERBS[verb]}")
