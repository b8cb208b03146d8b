"""``sdfstream top``: the live terminal view of a running pipeline, or one view of an instant in the archive."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import Any

from sdfstream import visible
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_data_folder, add_past, ask
from sdfstream.errors import UnavailableError

HELP = "live view: NIC grid, worst paths, clock quality, findings, pipeline lag"
EXAMPLE = "sdfstream top --once"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add_data_folder(parser)
    add_past(parser)
    parser.add_argument("--once", action="store_true", help="draw one view and stop (also when stdout is no terminal)")
    parser.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between views (default 1)")
    parser.add_argument("--rows", type=int, default=10, help="lines of each list (default 10)")
    parser.add_argument("--width", type=int, help="columns to draw for (default: the terminal's)")


def run(args: argparse.Namespace) -> int:
    """Draw until interrupted; with --once, --json, without a terminal, or of the archive once."""
    from rich.console import Console

    from sdfstream.board.status_text import is_of_archive
    from sdfstream.board.top_view import render
    from sdfstream.runtime.output_io import emit
    from sdfstream.serve.query_io import fetch_board

    rows, interval_s = max(1, args.rows), max(0.1, args.interval)
    if args.json:
        emit(True, ask(args, {"want": "board", "full": True, "hosts": 100_000}), "")
        return 0

    def options() -> dict[str, Any]:
        return {"hosts": max(8, console.height // 3), "worst": rows}

    def board() -> dict[str, Any]:
        return fetch_board(Path(args.data), **options())

    console = Console(width=args.width, highlight=False, markup=False, emoji=False)
    first = ask(args, {"want": "board", **options()})
    if args.once or not sys.stdout.isatty() or is_of_archive(first):
        console.print(render(first, console.width, rows))
        return 0
    _draw_until_stopped(console, board, rows, interval_s)
    return 0


def _draw_until_stopped(console: Any, board: Any, rows: int, interval_s: float) -> None:
    from rich.live import Live
    from rich.text import Text

    from sdfstream.board.top_view import render, rows_for

    def draw() -> Any:
        drawn = board()
        hosts = len(drawn.get("grid", {}).get("hosts", ()))
        fits = rows_for(console.height, console.width, hosts, rows, jobs=bool(drawn.get("jobs", {}).get("known")))
        return render(drawn, console.width, fits)

    shown = draw()  # nothing running is an error; a pipeline that ends later is only said
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(shown, refresh=True)
            edge_io.wait(interval_s)
            try:
                shown = draw()
            except UnavailableError as error:
                shown = Text(f"{visible.line(str(error))}\n\nwaiting for it to come back; Ctrl-C ends", style="yellow")
