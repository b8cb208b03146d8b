"""``sdfstream why JOB``: is it the network, where, since when, with evidence; one paragraph (`board.why`)."""

from __future__ import annotations

import argparse
from pathlib import Path

from sdfstream import visible
from sdfstream.board.why import explain
from sdfstream.cli.options import add_data_folder, add_server, server_url

HELP = "why is a job slow: is it the network, which link, since when, with evidence, and what was done"
EXAMPLE = "sdfstream why train-7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job; --at, --url, --data."""
    parser.add_argument("job", metavar="JOB", help="job id, or its name")
    parser.add_argument(
        "--at", metavar="TIME", help="about the past, from the archive: 10m ago, or 2027-01-15T08:00:00Z"
    )
    add_server(parser, "with --at, a ClickHouse server")
    add_data_folder(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the running pipeline, or the archive; exit 2 when there is no such job."""
    import sys
    import textwrap

    from sdfstream.runtime.output_io import emit
    from sdfstream.serve import past_io
    from sdfstream.serve.query_io import fetch

    if args.at is None:
        verdict = fetch(Path(args.data), {"want": "why", "job": args.job})["verdict"]
    else:
        board, at_ns = past_io.jobs_at(args.data, server_url(args), past_io.instant(args.at))
        verdict = explain(board.facts(args.job, at_ns)).as_data()
    paragraph = visible.line(str(verdict["paragraph"]))
    if sys.stdout.isatty():
        paragraph = textwrap.fill(paragraph, 100, break_on_hyphens=False, break_long_words=False)
    emit(args.json, verdict, paragraph)
    return 2 if verdict["case"] == "unknown-job" else 0
