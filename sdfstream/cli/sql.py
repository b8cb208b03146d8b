"""``sdfstream sql``: ask the archive."""

from __future__ import annotations

import argparse
import sys

from sdfstream import visible
from sdfstream.cli.options import add_server, server_url
from sdfstream.runtime.output_io import emit, write_answer

HELP = (
    "Ask the archive in ClickHouse's SQL, while the pipeline runs and afterwards; without a query, list what there is"
)
EXAMPLE = 'sdfstream sql "SELECT * FROM v_findings"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("query", nargs="?", help="one statement; '-' reads it from standard input")
    parser.add_argument("--data", default="./sdfstream-data", metavar="DIR", help="data folder (default: %(default)s)")
    add_server(parser)
    parser.add_argument(
        "--format",
        metavar="NAME",
        help="a ClickHouse format: PrettyCompact (default on a terminal), TSV, JSONEachRow, …",
    )


def run(args: argparse.Namespace) -> int:
    """Print the answer; exit 0."""
    from sdfstream.archive.query_io import Console

    sql = sys.stdin.read() if args.query == "-" else args.query
    console = Console.open(args.data, server_url(args))
    try:
        if sql is None:
            _list(console.catalogue(), args.json)
        elif args.json:
            found = console.answer(sql)
            emit(True, {"columns": found.columns, "rows": found.rows, "n": len(found.rows)}, "")
        else:
            terminal = sys.stdout.isatty()
            answer = console.text(sql, args.format or ("PrettyCompact" if terminal else "TSV"))
            write_answer(answer, as_is=bool(args.format) and not terminal)
    finally:
        console.close()
    return 0


def _list(catalogue: list[tuple[str, str]], as_json: bool) -> None:
    width = max((len(name) for name, _ in catalogue), default=0)
    text = visible.lines(f"{name:<{width}}  {doc}" for name, doc in catalogue)
    rows = [{"name": name, "doc": doc} for name, doc in catalogue]
    emit(as_json, {"columns": ["name", "doc"], "rows": rows, "n": len(rows)}, text)
