"""``sdfstream rdma``: what this machine has of RDMA, why there is none, and a test between two hosts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

HELP = "RDMA on this machine, or why there is none; tests and probes between two hosts: show, selftest, probe, …"
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
    reflect, probe = _add_probing(actions)
    for one in (show, answer, test, reflect, probe):
        one.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one compact JSON object")
    for one in (answer, test, reflect, probe):
        one.add_argument("--device", default="", metavar="NAME", help="RDMA device (default: the first)")
        one.add_argument("--gid-index", type=int, default=1, metavar="N", help="see sdfstream rdma show (default 1)")
    for one, port in ((answer, 18515), (test, 18515), (reflect, 18516), (probe, 18516)):
        one.add_argument("--port", type=int, default=port, metavar="N", help=f"TCP port (default {port})")


def _add_probing(actions: Any) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """Probes over queue pairs: the end that answers, and the end that asks."""
    text = "answer probes over RoCEv2 until it is ended, those of senders that have met it by TCP"
    reflect = actions.add_parser("reflect", help=text, description=text, epilog="example: sdfstream rdma reflect")
    reflect.add_argument("--listen", default="", metavar="ADDRESS", help="where to listen (default: everywhere)")
    reflect.set_defaults(act=_reflect)
    text = "probe a host's RDMA device by RoCEv2 packets, which hash and queue as a job's do; one line a source port"
    example = "example: sdfstream rdma probe h04 --paths 8 --dscp 26 --seconds 30 --out recording"
    probe = actions.add_parser("probe", help=text, description=text, epilog=example)
    probe.add_argument("peer", metavar="PEER", help="host on which sdfstream rdma reflect runs")
    probe.add_argument("--paths", type=int, default=4, metavar="N", help="source ports to probe by (default 4)")
    probe.add_argument(
        "--source-ports", default="", metavar="PORTS", help="these ones, from 49152 up, with commas, where a device can"
    )
    probe.add_argument("--rate", type=float, default=16.0, metavar="HZ", help="probes a second on each (default 16)")
    probe.add_argument("--seconds", type=float, default=10.0, metavar="S", help="how long at most (default 10)")
    probe.add_argument("--count", type=int, default=0, metavar="N", help="end after N probes on each source port")
    probe.add_argument("--dscp", type=int, default=0, metavar="N", help="class, as the workload's (default 0)")
    probe.add_argument("--size", type=int, default=160, metavar="BYTES", help="IP packet (default 160)")
    probe.set_defaults(act=_probe)
    probe.add_argument("--out", metavar="DIR", help="a recording of the rows, for sdfstream replay")
    for one in (reflect, probe):
        one.add_argument("--nic", default="", metavar="HOST/NIC", help="what to call this end (default: host/device)")
    return reflect, probe


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


def _reflect(args: argparse.Namespace) -> int:
    from sdfstream.runtime.output_io import progress
    from sdfstream.verbs.probing import main_io

    with main_io.until_signal() as ended:
        found = main_io.reflect(args.listen, args.port, args.device, args.gid_index, args.nic, progress, ended)
    refused = f", refused {n} that said nothing sound" if (n := found["refused_meetings"]) else ""
    emit(args.json, found, f"answered {found['answered']} probes of {found['senders']} senders{refused}")
    return 0


def _probe(args: argparse.Namespace) -> int:
    from sdfstream.agent.report import table
    from sdfstream.runtime.output_io import progress
    from sdfstream.verbs.probing import main_io

    wanted = main_io.Wanted(
        peer=args.peer,
        port=args.port,
        device=args.device,
        gid_index=args.gid_index,
        nic=args.nic,
        source_ports=_ports(args.source_ports) if args.source_ports else (),
        paths=args.paths,
        rate_hz=args.rate,
        seconds=args.seconds,
        count=args.count,
        dscp=args.dscp,
        size_bytes=args.size,
        out=args.out,
    )
    found = main_io.probe(wanted, progress)
    emit(args.json, found, table(found["paths"]))
    return 0


def _ports(text: str) -> tuple[int, ...]:
    """Source ports with commas. ConfigError: no numbers, one twice, or none that RoCEv2 uses."""
    try:
        ports = tuple(int(one) for one in text.split(","))
    except ValueError:
        raise ConfigError(f"--source-ports {text}: numbers with commas between them") from None
    if len(set(ports)) < len(ports) or not all(49152 <= port <= 65535 for port in ports):
        raise ConfigError(f"--source-ports {text}: RoCEv2 uses 49152 to 65535, and none stands twice")
    return ports


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
