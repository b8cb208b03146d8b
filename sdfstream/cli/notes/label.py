"""``sdfstream label FINDING CAUSE``: say what a finding turned out to be."""

from __future__ import annotations

import argparse

from sdfstream.cli import edge_io, operator
from sdfstream.errors import ConfigError
from sdfstream.records.silences import LABEL, LABELS, MOST_TEXT
from sdfstream.serve import overrides_io

HELP = "say what a finding turned out to be: its true cause, or false-alarm; shown wherever the finding is"
EXAMPLE = 'sdfstream label 3f9a12 cabling --note "ports 3 and 4 swapped"'


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The finding, the cause, a note; and the options of every override."""
    parser.add_argument("finding", metavar="FINDING", help="id of the finding (the beginning of it is enough)")
    parser.add_argument("cause", metavar="CAUSE", help=f"one of {', '.join(LABELS)}")
    parser.add_argument("--note", default="", metavar="TEXT", help="what else others should know")
    operator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Sign, send, print the outcome; exit 2 without one, or when it is a refusal."""
    if args.cause not in LABELS:
        raise ConfigError(f"no cause {args.cause!r}; there are {', '.join(LABELS)}")
    if len(args.note) > MOST_TEXT:
        raise ConfigError(f"--note has more than {MOST_TEXT} characters")
    session = operator.session(args)
    set_ = {"cause": args.cause} | ({"note": args.note} if args.note else {})
    target = {"type": "finding", "id": _whole_id(args)}
    made = overrides_io.signed(session, LABEL, edge_io.now_ns(), overrides_io.SHORT_S, target=target, set_=set_)
    return operator.send_and_report(args, session, [made])


def _whole_id(args: argparse.Namespace) -> str:
    """The id that begins so; by Kafka nobody is asked, and it must be whole."""
    from pathlib import Path

    from sdfstream.serve.query_io import fetch

    given = str(args.finding)
    if args.bus is not None:
        return given
    known = [str(finding["id"]) for finding in fetch(Path(args.data), {"want": "findings"})["findings"]]
    found = [given] if given in known else [name for name in known if name.startswith(given)]
    if len(found) != 1:
        which = f"{len(found)} findings have ids that begin" if found else "no finding has an id that begins"
        raise ConfigError(f"{which} with {given!r}; see sdfstream findings")
    return found[0]
