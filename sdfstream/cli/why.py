"""``sdfstream why JOB``: is it the network, where, since when, with evidence; one paragraph (`board.why`)."""

from __future__ import annotations

import argparse

from sdfstream import visible
from sdfstream.cli.options import add_data_folder, add_past, ask, heading

HELP = "why is a job slow: is it the network, which link, since when, with evidence, and what was done"
EXAMPLE = "sdfstream why train-7"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The job; --at, --url, --data."""
    parser.add_argument("job", metavar="JOB", help="job id, or its name")
    add_past(parser)
    add_data_folder(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the running pipeline, or the archive; exit 2 when there is no such job."""
    import sys
    import textwrap

    from sdfstream.runtime.output_io import emit

    answer = ask(args, {"want": "why", "job": args.job})
    verdict = answer["verdict"]
    paragraph = visible.line(str(verdict["paragraph"]))
    if sys.stdout.isatty():
        paragraph = textwrap.fill(paragraph, 100, break_on_hyphens=False, break_long_words=False)
    emit(args.json, verdict | {"source": answer["source"]}, heading(answer) + paragraph)
    return 2 if verdict["case"] == "unknown-job" else 0
