"""``sdfstream commands``: what the loop did, wanted to do or was refused; as a list or followed live."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream import visible
from sdfstream.board.commands_text import line_of, select
from sdfstream.board.humanize import seconds
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_data_folder, add_past, ask, heading
from sdfstream.errors import ConfigError
from sdfstream.records.units import NS_PER_S

HELP = "what the loop did: each command with its target, mode, state, reason, lease and gain"
EXAMPLE = "sdfstream commands --job train-7 --since 10m"
FOLLOW_S: Final = 0.3
OVERLAP_NS: Final = 30 * NS_PER_S
"""Changes of so long before the last answer are requested again, since the clocks of their authors differ."""

Data = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add_data_folder(parser)
    parser.add_argument("--job", help="only this job's")
    parser.add_argument(
        "--since", metavar="TIME", help="only what began or changed at most this long ago: 30s, 10m, 2h"
    )
    parser.add_argument("--follow", action="store_true", help="go on, and print every change as it comes")
    add_past(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the running pipeline; where none runs, the archive."""
    from sdfstream.runtime.output_io import emit

    try:
        since_s = None if args.since is None else seconds(args.since)
    except ValueError as error:
        raise ConfigError(f"--since: {error}") from error
    if args.follow:
        if args.at is not None or args.url is not None:
            raise ConfigError("--follow prints what comes from now on, of a running pipeline: leave out --at and --url")
        return _follow(args, since_s)
    answer = ask(args, {"want": "commands", "job": args.job})
    found = select(answer["commands"], int(answer["at_ns"]), since_s)
    text = visible.lines(line_of(c) for c in reversed(found)) or "no commands"
    result = {"at_ns": answer["at_ns"], "source": answer["source"], "commands": found}
    emit(args.json, result, heading(answer) + text)
    return 0


def _follow(args: argparse.Namespace, since_s: float | None) -> int:
    """Print every command whenever its state changes, until interrupted; first those of the past `since_s`."""
    from sdfstream.runtime.output_io import compact, say
    from sdfstream.serve.query_io import fetch

    request: dict[str, Any] = {"want": "commands", "job": args.job}
    seen: dict[str, tuple[Any, ...]] = {}
    while True:
        answer = fetch(Path(args.data), request)
        for command in reversed(select(answer["commands"], int(answer["at_ns"]), since_s)):
            if seen.get(command["id"]) != _mark(command):
                say(compact(command) if args.json else line_of(command))
        seen = {c["id"]: _mark(c) for c in answer["commands"]}
        since_s = None  # the past is printed; from now on every change
        request["since_ns"] = int(answer["at_ns"]) - OVERLAP_NS
        edge_io.wait(FOLLOW_S)


def _mark(command: Data) -> tuple[Any, ...]:
    return (command.get("state"), command.get("why"), command.get("gain"), command.get("mode"))
