"""``sdfstream agent``: probe, answer and publish from this host."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream.cli.options import add_metrics

if TYPE_CHECKING:
    from sdfstream.agent.packets import RoceProbes
    from sdfstream.bus.kafka.config import KafkaConfig
    from sdfstream.probes.config import AgentConfig

HELP = "probe peers and answer their probes from this host; publish every exchange"
EXAMPLE = (
    "sdfstream agent --peer 10.0.0.2 --out trial   (and on 10.0.0.2: sdfstream agent --peer THIS-HOST --out trial)"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options: a configuration file, or peers."""
    what = parser.add_argument_group("what to probe")
    what.add_argument(
        "--config", metavar="FILE", type=Path, help="YAML of the agent's settings (sdfstream config show)"
    )
    what.add_argument(
        "--peer", metavar="[NAME=]HOST[:PORT]", action="append", default=[], help="a far host; repeatable"
    )
    what.add_argument("--name", help="this host's name (default: its address towards the first peer)")
    what.add_argument("--from", dest="own", metavar="ADDRESS", help="own address (default: what the route says)")
    what.add_argument(
        "--reflect-only", action="store_true", help="answer probes, send none; without --peer on every address"
    )
    how = parser.add_argument_group("how, with --peer")
    how.add_argument("--port", type=int, default=8620, help="UDP port of the reflectors (default 8620)")
    how.add_argument("--paths", type=int, default=4, help="source ports, each a path of its own (default 4)")
    how.add_argument("--rate", type=float, default=16.0, metavar="HZ", help="probes per second and path (default 16)")
    how.add_argument("--dscp", type=int, default=0, help="class (default 0)")
    how.add_argument("--size", type=int, default=128, metavar="BYTES", help="IP packet size (default 128)")
    where = parser.add_argument_group("where to")
    where.add_argument("--out", metavar="DIR", type=Path, help="write a recording, for sdfstream replay")
    where.add_argument("--bus", metavar="link:PATH|kafka://HOST:PORT|DIR", help="publish there")
    where.add_argument(
        "--kafka", metavar="FILE", type=Path, help="YAML whose kafka part says how the brokers are reached "
        "(default: that of --config)",
    )  # fmt: skip
    add_metrics(parser)
    parser.add_argument(
        "--seconds", type=float, metavar="N", help="stop after this long (default: on Ctrl-C or SIGTERM)"
    )


def run(args: argparse.Namespace) -> int:
    """Run until stopped; the closing report goes to stdout."""
    from logging import INFO

    from sdfstream.runtime import allocators, startup_memory_io

    allocators.configure(small=True)  # before Arrow is loaded
    import pyarrow  # noqa: F401

    startup_memory_io.unmap_unchanged()  # before the rest is loaded: so it is small at its largest, too
    from sdfstream.agent import process_io
    from sdfstream.runtime import logs_io, loop_io
    from sdfstream.runtime.output_io import emit

    startup_memory_io.unmap_unchanged()
    logs_io.to_stderr(INFO)
    config, kafka = configuration(args), kafka_of(args)
    options = {"report": bool(args.peer), "kafka": kafka, "metrics": args.metrics, "roce_of": _carrier_of}
    result = loop_io.run(process_io.run(config, args.bus, args.out, args.seconds, **options))
    emit(args.json, result, process_io.readable(result))
    return 0


def _carrier_of(config: AgentConfig) -> RoceProbes:
    """Loaded with the first RoCEv2 session alone."""
    from sdfstream.verbs.carried.thread_io import carrier_of

    return carrier_of(config)


def configuration(args: argparse.Namespace) -> AgentConfig:
    """What the options say; raises ConfigError."""
    from sdfstream.agent import config_file
    from sdfstream.errors import ConfigError

    if bool(args.config) == bool(args.peer or args.reflect_only):
        raise ConfigError("give either --config FILE, or --peer HOST (once or more), or --reflect-only")
    config = _from_file(args.config) if args.config else _from_peers(args)
    config_file.check(config)
    return config


def kafka_of(args: argparse.Namespace) -> KafkaConfig | None:
    """How the brokers are reached, as ``--kafka FILE`` or ``--config FILE`` says; None: no file says anything."""
    from sdfstream import yamlfile
    from sdfstream.agent.config_file import read
    from sdfstream.errors import ConfigError

    path = args.kafka or args.config
    raw = yamlfile.read(path) if path else None
    if not isinstance(raw, Mapping) or "kafka" not in raw:
        if args.kafka:
            raise ConfigError(f"{path}: there is no key 'kafka'")
        return None
    from sdfstream.bus.kafka.config import KafkaConfig

    try:
        found = read(KafkaConfig, raw["kafka"], "kafka")
        found.check()
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    return found


def _from_file(path: Path) -> AgentConfig:
    from sdfstream import yamlfile
    from sdfstream.agent.config_file import read_agent
    from sdfstream.errors import ConfigError

    raw = yamlfile.read(path)
    try:
        return read_agent(raw)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _from_peers(args: argparse.Namespace) -> AgentConfig:
    from sdfstream.agent import trial
    from sdfstream.probes.net import route_io

    config = trial.TrialConfig(
        port=args.port, paths=args.paths, rate_hz=args.rate, dscp=args.dscp, size_bytes=args.size
    )
    routes = []
    for text in args.peer:
        peer = trial.parse_peer(text)
        address = route_io.resolve(peer.host)
        own = route_io.Local(args.own, route_io.device_of(args.own)) if args.own else route_io.local_towards(address)
        routes.append(trial.PeerRoute(peer, address, own.address, own.device))
    if args.reflect_only and not routes:
        routes = [
            trial.PeerRoute(trial.Peer(None, "", None), f"-{i}", *own) for i, own in enumerate(_own_addresses(args.own))
        ]
    return trial.build(args.name, routes, config, reflect_only=args.reflect_only)


def _own_addresses(own: str | None) -> list[Any]:
    from sdfstream.errors import UnavailableError
    from sdfstream.probes.net import route_io

    if own:
        return [route_io.Local(own, route_io.device_of(own))]
    found = route_io.locals_here()
    if not found:
        raise UnavailableError("this machine has no address but loopback; give --from ADDRESS")
    return found
