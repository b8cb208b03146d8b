"""``sdfstream topo``: the fabric and which hosts are near each other, for people, as JSON, or for Slurm."""

from __future__ import annotations

import argparse

from sdfstream.cli.options import add_data_folder, add_past, ask, heading
from sdfstream.errors import UnavailableError

HELP = "the fabric, and which hosts are near each other (declared, or by measured delays); for Slurm, too"
EXAMPLE = "sdfstream topo --format slurm > topology.conf"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--format, and where to ask."""
    add_data_folder(parser)
    parser.add_argument(
        "--format", choices=("text", "slurm"), default="text", help="slurm: topology.conf of its tree plugin"
    )
    add_past(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the pipeline once; where none runs, the archive."""
    from sdfstream.board.topology_text import slurm_of, text_of
    from sdfstream.runtime.output_io import complain, emit

    answer = ask(args, {"want": "topology"})
    if not answer["groups"]:
        raise UnavailableError(
            "no cabling is declared, and the delays measured so far do not tell which hosts share a switch"
        )
    if args.format == "text":
        emit(args.json, answer, heading(answer) + text_of(answer))
        return 0
    if answer["unplaced"]:
        complain(f"sdfstream topo: {len(answer['unplaced'])} hosts are left out: where they are is not known")
    when = heading(answer)
    emit(args.json, answer, (f"# {when}" if when else "") + slurm_of(answer))
    return 0
