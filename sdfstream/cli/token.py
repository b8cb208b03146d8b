"""``sdfstream token``: tokens of the read API of a data folder, each with a role."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream import visible
from sdfstream.board.humanize import seconds
from sdfstream.board.source_text import utc
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_data_folder
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit
from sdfstream.serve.api import tokens_io
from sdfstream.serve.api.roles import ROLES

HELP = "tokens of the read API: make one for whoever is not the owner of the data folder, list them, take one back"
EXAMPLE = "sdfstream token add grafana --role view"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add NAME, list, remove NAME."""
    verbs = parser.add_subparsers(dest="what", metavar="add|list|remove", required=True)
    add = verbs.add_parser("add", help="make a token and print it: it is written nowhere else")
    add.add_argument("name", help="whose it is")
    add.add_argument("--role", choices=tuple(ROLES), default="view", help="what it may do (default: view)")
    add.add_argument(
        "--expires", metavar="TIME", help="how long it is good for: 12h, 30d (default: until it is removed)"
    )
    verbs.add_parser("list", help="names and roles")
    remove = verbs.add_parser("remove", help="take a token back; at once, also of a pipeline that runs")
    remove.add_argument("name")
    for verb in verbs.choices.values():
        add_data_folder(verb)
        verb.add_argument("--json", action="store_true", help=argparse.SUPPRESS, default=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    """Change or show the tokens file."""
    data = Path(args.data)
    if args.what == "add":
        token = tokens_io.add(data, args.name, args.role, _expires_at_ns(args.expires))
        emit(args.json, {"name": args.name, "role": args.role, "token": token}, "" if args.json else token)
    elif args.what == "remove":
        tokens_io.remove(data, args.name)
        emit(args.json, {"removed": args.name}, f"{args.name} is removed")
    else:
        tokens = tokens_io.read(data)
        lines = [
            f"{t.name:<24}  {t.role:<8}" + (f"  until {utc(t.expires_at_ns)}" if t.expires_at_ns is not None else "")
            for t in tokens
        ]
        found = [{"name": t.name, "role": t.role, "expires_at_ns": t.expires_at_ns} for t in tokens]
        emit(args.json, {"tokens": found}, visible.lines(lines) or "no tokens")
    return 0


def _expires_at_ns(text: str | None) -> int | None:
    try:
        return None if text is None else edge_io.now_ns() + round(seconds(text) * 1e9)
    except ValueError as error:
        raise ConfigError(f"--expires: {error}") from error
