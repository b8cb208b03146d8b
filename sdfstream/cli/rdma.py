"""``sdfstream rdma``: what this machine has of RDMA, why there is none, and a test between two hosts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "RDMA on this machine, or why there is none; a test of steering between two hosts: show, answer, selftest"
EXAMPLE = "sdfstream rdma show --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per thing to do."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "devices with their GIDs, counters and queue pairs, or why there is none"
    show = actions.add_parser("show", help=text, description=text, epilog="example: sdfstream rdma show")
    show.add_argument("--root", default="/", metavar="DIR", help="where sys and dev are (default /)")
    show.set_defaults(act=_show)
    text = "serve one test: the other host may write to 64 KiB of this process's memory meanwhile"
    answer = actions.add_parser("answer", help=text, description=text, epilog="example: sdfstream rdma answer")
    answer.add_argument("--listen", default="", metavar="ADDRESS", help="where to listen (default: everywhere)")
    answer.set_defaults(act=_answer)
    text = "what a host that answers and this one can do: live moves with requests outstanding, delays by source port"
    test = actions.add_parser("selftest", help=text, description=text, epilog="example: sdfstream rdma selftest h04")
    test.add_argument("peer", metavar="PEER", help="host on which sdfstream rdma answer runs")
    test.add_argument("--ports", type=int, default=16, metavar="N", help="source ports to try (default 16)")
    test.add_argument("--samples", type=int, default=200, metavar="N", help="writes to time on each (default 200)")
    test.set_defaults(act=_selftest)
    for one in (show, answer, test):
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one compact JSON object")
    for one in (answer, test):
        one.add_argument("--device", default="", metavar="NAME", help="RDMA device (default: the first)")
        one.add_argument("--gid-index", type=int, default=1, metavar="N", help="see sdfstream rdma show (default 1)")
        one.add_argument("--port", type=int, default=18515, metavar="N", help="TCP port (default 18515)")


def run(args: argparse.Namespace) -> int:
    """Do the chosen action; 0 also where there is no RDMA to show."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _show(args: argparse.Namespace) -> int:
    from sdfstream.verbs.machine_io import survey

    found = survey(args.root)
    emit(args.json, found, "\n".join(_lines(found)))
    return 0


def _answer(args: argparse.Namespace) -> int:
    from sdfstream.runtime.output_io import progress
    from sdfstream.verbs import selftest_io

    peer = selftest_io.answer(args.listen, args.port, args.device, args.gid_index, progress)
    emit(args.json, {"peer": peer}, f"tested by {peer}")
    return 0


def _selftest(args: argparse.Namespace) -> int:
    from sdfstream.verbs import selftest_io

    if args.ports < 1 or args.samples < 1:
        raise ConfigError("--ports and --samples are at least 1")
    found = selftest_io.selftest(args.peer, args.port, args.device, args.gid_index, args.ports, args.samples)
    emit(args.json, found, "\n".join(_verdicts(found)))
    return 0


def _verdicts(found: dict[str, Any]) -> Iterator[str]:
    can, moves = found["capabilities"], found["move_ms"]
    yield f"{can['driver']}: steering by {can['steer']}" + (f" ({can['why_not']})" if can["why_not"] else "")
    if moves is not None:
        yield f"{found['moves']} live moves, median {moves['median']:.2f} ms, worst {moves['max']:.2f} ms"
    yield from (f"refused: {why}" for why in found["moves_refused"])
    yield f"{found['requests']} requests were outstanding, {found['requests_lost']} lost, {found['errors']} errors"
    follows = "yes" if found["delay_follows_port"] else "not known"
    yield f"delay follows the source port: {follows} ({found['delay_follows_port_why']})"
    yield f"live steering works: {'yes' if found['live_steering_works'] else 'no'}; with --json: a report to share"


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
