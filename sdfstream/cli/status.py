"""``sdfstream status``: one screen of figures about a running pipeline."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream.cli.options import add_data_folder

HELP = "one screen: NICs by state, open findings, jobs, last commands, clocks, freshness, lag, what was refused"
EXAMPLE = "sdfstream status --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add_data_folder(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the pipeline once."""
    from sdfstream.board.status_text import text_of
    from sdfstream.runtime.output_io import emit
    from sdfstream.serve.query_io import fetch_board

    board = fetch_board(Path(args.data), hosts=0, worst=5, full=True)
    keys = (
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
    emit(args.json, result, text_of(board))
    return 0
