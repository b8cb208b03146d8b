"""``sdfstream status``: one screen of figures about a running pipeline, or of an instant in the archive."""

from __future__ import annotations

import argparse

from sdfstream.cli.options import add_data_folder, add_past, ask, heading

HELP = "one screen: NICs by state, open findings, jobs, last commands, clocks, freshness, lag, what was refused"
EXAMPLE = "sdfstream status --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add_data_folder(parser)
    add_past(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the pipeline once; where none runs, the archive."""
    from sdfstream.board.status_text import text_of
    from sdfstream.runtime.output_io import emit

    board = ask(args, {"want": "board", "hosts": 0, "worst": 5, "full": True})
    keys = (
        "source",
        "at_ns",
        "known_at_ns",
        "run",
        "nics",
        "paths",
        "clocks",
        "mesh",
        "findings",
        "jobs",
        "commands",
        "pipeline",
    )
    result = {key: board[key] for key in keys if key in board}
    emit(args.json, result, heading(board) + text_of(board))
    return 0
