"""``sdfstream rdma``: what this machine has of RDMA, and why there is none where there is none."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from sdfstream.runtime.output_io import emit

HELP = "RDMA on this machine: devices, addresses, queue pairs of all programs, or why there is none: show"
EXAMPLE = "sdfstream rdma show --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per thing to do."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "devices with their GIDs, counters and queue pairs, or why there is none"
    show = actions.add_parser("show", help=text, description=text, epilog="example: sdfstream rdma show")
    show.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one compact JSON object")
    show.add_argument("--root", default="/", metavar="DIR", help="where sys and dev are (default /)")


def run(args: argparse.Namespace) -> int:
    """Show it; 0 also where there is no RDMA."""
    from sdfstream.verbs.machine_io import survey

    found = survey(args.root)
    emit(args.json, found, "\n".join(_lines(found)))
    return 0


def _lines(found: dict[str, Any]) -> Iterator[str]:
    if found["why_none"]:
        yield found["why_none"]
    for port in found["ports"]:
        yield f"{port['device']}/{port['port']}  {port['state']}  {port['link_layer']}"
        for gid in port["gids"]:
            best = "  use this one" if gid["index"] == port["best_gid"] else ""
            yield f"  GID {gid['index']}  {gid['address']}  {gid['version']}  {gid['netdev']}{best}"
        if port["counters"]:
            yield "  " + "  ".join(f"{name} {n}" for name, n in port["counters"].items())
    if found["index_fault"]:
        yield found["index_fault"]
    for qp in found["qps"]:
        peer = "" if qp["peer_number"] is None else f" to {qp['peer_number']}"
        owner = f"{qp['program']} ({qp['pid']})"
        yield f"{qp['device']}/{qp['port']} {qp['kind']} {qp['number']}{peer}  {qp['state']}  {owner}"
    if found["why_no_qps"]:
        yield f"queue pairs are not known: {found['why_no_qps']}"
