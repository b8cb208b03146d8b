"""``sdfstream lab``: a leaf-spine of network namespaces to measure, break and heal."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sdfstream import visible
from sdfstream.cli import edge_io
from sdfstream.cli.lab import job as lab_job
from sdfstream.runtime.output_io import emit

if TYPE_CHECKING:
    from sdfstream.lab.client_io import RunningLab

HELP = "a fabric of network namespaces with real packets: up, down, status, break, heal, congest, path, exec, job"
EXAMPLE = "sdfstream lab up --hosts 8 && sdfstream lab break l0--s1 && sdfstream lab heal && sdfstream lab down"

_SIZES = {
    "hosts": (int, "hosts"),
    "rails": (int, "NICs per host, each on its own rail"),
    "leaves": (int, "leaves; a multiple of the rails"),
    "spines": (int, "spines"),
    "rate_bps": (int, "rate of every leaf-spine direction, bit/s"),
    "host_rate_bps": (int, "rate of every leaf->host direction, bit/s; not limited by default"),
    "queue_bytes": (int, "queue of every leaf-spine direction, bytes"),
    "ce_threshold_bytes": (int, "backlog above which CE is set, bytes; 0: never"),
    "hash_seed": (int, "seed of the ECMP hash"),
    "class_dscp": (int, "DSCP with a queue class of its own"),
    "class_rate_bps": (int, "rate of that class, bit/s"),
    "ip_version": (int, "4 or 6"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per thing to do."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_up(actions)
    _add(actions, "down", _down, "take the lab down", "sdfstream lab down")
    _add(actions, "status", _status, "sizes, features, faults, ways in, queues", "sdfstream lab status --json")
    _add_break(actions)
    heal = _add(actions, "heal", _heal, "heal a fault, a target's faults, or everything", "sdfstream lab heal l0--s1")
    heal.add_argument("which", nargs="?", help="fault id (f1) or target; default: everything")
    congest = _add(actions, "congest", _congest, "send cross traffic", "sdfstream lab congest 'l0->s1' --seconds 5")
    congest.add_argument("target", help="direction 'l0->s1', link l0--s1, or NIC h03/r1")
    congest.add_argument("--rate", type=float, default=1.3, help="multiple of the queue's rate (default 1.3)")
    congest.add_argument("--seconds", type=float, help="how long; default: until healed")
    congest.add_argument("--dscp", type=int, default=0, help="class of the traffic")
    path = _add(actions, "path", _path, "true path of a packet", "sdfstream lab path h00/r0 h04/r0 49152")
    path.add_argument("src", help="NIC h00/r0")
    path.add_argument("dst", help="NIC h04/r0")
    path.add_argument("source_port", type=int)
    path.add_argument("dest_port", type=int, nargs="?", default=862)
    run_in = _add(actions, "exec", _exec, "run a command in a node", "sdfstream lab exec h00 -- ip address")
    run_in.add_argument("node", help="h00, l0, s1, …; '-' enters only the lab's user namespace")
    run_in.add_argument("command", nargs=argparse.REMAINDER)
    lab_job.add_to(actions, _add)


def run(args: argparse.Namespace) -> int:
    """Do the chosen action."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _add(actions: Any, name: str, act: Callable[[argparse.Namespace], int], text: str, example: str) -> Any:
    parser = actions.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one compact JSON object")
    parser.add_argument("--name", default="lab", help="which lab (default: lab)")
    parser.set_defaults(act=act)
    return parser


def _add_up(actions: Any) -> None:
    parser = _add(actions, "up", _up, "start a lab; it runs until `lab down`", "sdfstream lab up --hosts 4 --spines 2")
    for key, (kind, text) in _SIZES.items():
        parser.add_argument("--" + key.replace("_", "-"), type=kind, help=text)
    parser.add_argument("--hash-ignores-source-port", action="store_true", help="source ports select no path")
    parser.add_argument("--miscabled", action="append", default=[], metavar="HOST", help="swap this host's cables")
    parser.add_argument("--truth", metavar="DIR", help="folder that gets faults.jsonl")


def _add_break(actions: Any) -> None:
    parser = _add(
        actions, "break", _break, "break something", "sdfstream lab break l0--s1 --kind gray-loss --share 0.1"
    )
    parser.add_argument("target", help="NIC h03/r1, link l0--s1, direction 'l0->s1' or node s1; miscabled: host h03")
    kinds = ("link-down", "black-hole", "gray-loss", "mtu", "flap", "miscabled")
    parser.add_argument("--kind", choices=kinds, default="link-down")
    parser.add_argument("--share", type=float, default=1.0, help="lost share for gray-loss, 0..1")
    parser.add_argument("--octets", type=int, help="largest IP packet that passes, for mtu (default 1300)")
    parser.add_argument("--end", help="end that is set down, as the link names it (default: the leaf's)")
    parser.add_argument("--times", type=int, default=9, help="flap: how often")
    parser.add_argument("--period", type=float, default=1.0, help="flap: seconds from one outage to the next")
    parser.add_argument("--down", type=float, help="flap: seconds of each outage (default: half the period)")


def _up(args: argparse.Namespace) -> int:
    from pathlib import Path

    from sdfstream.lab.owner_io import start
    from sdfstream.lab.spec import FabricSpec

    given = {key: getattr(args, key) for key in _SIZES if getattr(args, key) is not None}
    spec = FabricSpec(
        **given,
        hash_ignores_source_port=args.hash_ignores_source_port,
        miscabled_hosts=tuple(args.miscabled),
        name=args.name,
    )
    begun = edge_io.steady_s()
    pid = start(spec, Path(args.truth).resolve() if args.truth else None)
    took_ms = (edge_io.steady_s() - begun) * 1e3
    status = _lab(args).ask("status")
    features = status["features"]
    text = (
        f"lab {spec.name!r} is up: {spec.hosts} hosts × {spec.rails} rails, {spec.leaves} leaves, "
        f"{spec.spines} spines, {spec.rate_bps / 1e6:g} Mbit/s, in {took_ms:.0f} ms (owner: process {pid})"
    )
    text += "".join(f"\nmissing: {sentence}" for sentence in features["missing"])
    emit(args.json, {"name": spec.name, "pid": pid, "up_ms": round(took_ms, 1), "features": features}, text)
    return 0


def _down(args: argparse.Namespace) -> int:
    _lab(args).down()
    emit(args.json, {"name": args.name, "down": True}, f"lab {args.name!r} is down")
    return 0


def _status(args: argparse.Namespace) -> int:
    status = _lab(args).ask("status")
    spec = status["spec"]
    lines = [
        f"lab {args.name!r}: {spec['hosts']} hosts × {spec['rails']} rails, {spec['leaves']} leaves, "
        f"{spec['spines']} spines; owner: process {status['pid']}",
        f"CE marks: {status['features']['ce_marks'] or 'none'}; drops: {status['features']['drops'] or 'none'}",
    ]
    lines += [f"missing: {sentence}" for sentence in status["features"]["missing"]]
    lines += [f"fault {f['id']}: {f['kind']} on {f['target']} {f['parameters'] or ''}" for f in status["faults"]]
    lines += [f"waiting: {n} bytes in {direction}" for direction, n in status["backlog_bytes"].items()]
    lines += [f"way in: nsenter --net={status['netns']['h00']}   (or: sdfstream lab exec h00 -- COMMAND)"]
    emit(args.json, status, visible.lines(lines))
    return 0


def _break(args: argparse.Namespace) -> int:
    if args.kind == "flap":
        answer = _lab(args).ask(
            "flap", target=args.target, times=args.times, period_s=args.period, down_s=args.down, end=args.end
        )
    else:
        more = {"octets": args.octets} if args.octets is not None else {}
        answer = _lab(args).ask("inject", target=args.target, kind=args.kind, share=args.share, end=args.end, **more)
    fault = answer["fault"]
    emit(args.json, answer, f"{fault['id']}: {fault['kind']} on {fault['target']}; heal with: sdfstream lab heal")
    return 0


def _heal(args: argparse.Namespace) -> int:
    answer = _lab(args).ask("heal", which=args.which)
    text = visible.lines(f"healed {f['id']}: {f['kind']} on {f['target']}" for f in answer["faults"])
    emit(args.json, answer, text or "nothing was broken")
    return 0


def _congest(args: argparse.Namespace) -> int:
    answer = _lab(args).ask("congest", target=args.target, load=args.rate, seconds=args.seconds, dscp=args.dscp)
    fault = answer["fault"]
    rates = fault["parameters"]["packets_per_s"]
    text = f"{fault['id']}: {args.rate:g} × the rate of {args.target} ({', '.join(f'{r} packets/s' for r in rates)})"
    emit(args.json, answer, text)
    return 0


def _path(args: argparse.Namespace) -> int:
    asked = {key: getattr(args, key) for key in ("src", "dst", "source_port", "dest_port")}
    answer = _lab(args).ask("path", **asked)
    emit(args.json, answer, " ".join(answer["path"]) or "no way")
    return 0


def _exec(args: argparse.Namespace) -> int:
    from sdfstream.errors import ConfigError

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise ConfigError("lab exec needs a command: sdfstream lab exec h00 -- ip address")
    return _lab(args).enter(None if args.node == "-" else args.node, command)


def _lab(args: argparse.Namespace) -> RunningLab:
    from sdfstream.lab.client_io import RunningLab

    return RunningLab(args.name)
