"""``sdfstream topics``: what Kafka's topics must be like, whether they are, and making them so."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream import visible
from sdfstream.bus.kafka import topics_text
from sdfstream.errors import ConfigError
from sdfstream.runtime.output_io import emit

if TYPE_CHECKING:
    from sdfstream.bus.kafka.acl_io import AclState
    from sdfstream.bus.kafka.config import KafkaConfig

HELP = "Kafka's topics: list what they must be like, check whether they are, apply: make them so"
EXAMPLE = "sdfstream topics apply --bus kafka://localhost:9092 --dry-run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What; --bus, --config, --dry-run, --acls, --prune."""
    parser.add_argument(
        "what",
        choices=("list", "check", "apply"),
        help="list: the policy that the settings make; check: exit 1 when the brokers' topics are not so; apply: "
        "create what is absent, change settings, add partitions; nothing is ever taken away",
    )
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="the brokers (default: the settings' bus)")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (YAML); see sdfstream config show")
    parser.add_argument("--dry-run", action="store_true", help="apply: only say what would be done")
    parser.add_argument(
        "--acls", action="store_true", help="the roles' access rules too (needs the package confluent-kafka)"
    )
    parser.add_argument("--prune", action="store_true", help="apply --acls: take rights away that no role needs")


def run(args: argparse.Namespace) -> int:
    """Exit 1 only when `check` found differences."""
    from sdfstream import settings
    from sdfstream.bus.open_io import kafka_at

    if args.prune and not (args.what == "apply" and args.acls):
        raise ConfigError("--prune goes with apply --acls")
    if args.dry_run and args.what != "apply":
        raise ConfigError("--dry-run goes with apply")
    chosen = settings.load(args.config)
    name = args.bus or chosen.bus
    if args.what == "list":
        return _list(args, chosen.kafka)
    if name == "memory":
        raise ConfigError("give --bus kafka://HOST:PORT, or a settings file with bus: kafka://HOST:PORT")
    config = kafka_at(name, chosen.kafka)
    if args.what == "apply" and not args.dry_run:
        return _apply(args, config)
    return _compare(args, config)


def _list(args: argparse.Namespace, config: KafkaConfig) -> int:
    from sdfstream.bus.kafka.roles import grants
    from sdfstream.bus.kafka.topic_policy import policies

    wanted = policies(config)
    result: dict[str, Any] = {"topics": [asdict(p) | {"most_bytes": p.most_bytes} for p in wanted]}
    text = topics_text.policies(wanted)
    if args.acls:
        needed = grants(config)
        result["acls"] = [asdict(g) for g in needed]
        text += "\n\n" + visible.lines(topics_text.grant(g) for g in needed)
    emit(args.json, result, text)
    return 0


def _compare(args: argparse.Namespace, config: KafkaConfig) -> int:
    from sdfstream.bus.kafka import topics_io
    from sdfstream.runtime import loop_io

    _, found = loop_io.run(topics_io.compare(config))
    acls = _acls(config) if args.acls else None
    ok = not found and (acls is None or acls.as_needed)
    result: dict[str, Any] = {"ok": ok, "differences": [asdict(d) for d in found]}
    lines = [topics_text.difference(d) for d in found]
    if acls is not None:
        result["acls"] = asdict(acls)
        lines += topics_text.acls(acls)
    if args.what == "apply":
        result["dry_run"] = True
        lines = [*lines, "nothing was changed (--dry-run)"] if lines else ["nothing to do"]
    elif ok:
        lines = [f"{config.servers}: all topics are as they must be"]
    emit(args.json, result, visible.lines(lines))
    return 0 if ok or args.what == "apply" else 1


def _apply(args: argparse.Namespace, config: KafkaConfig) -> int:
    from sdfstream.bus.kafka import topics_io
    from sdfstream.runtime import loop_io

    applied = loop_io.run(topics_io.apply(config))
    done = [d for d in applied.before if d not in applied.after]
    result: dict[str, Any] = {"done": [asdict(d) for d in done], "left": [asdict(d) for d in applied.after]}
    lines = [topics_text.done(d) for d in done]
    lines += [f"left: {topics_text.difference(d)}" for d in applied.after]
    if args.acls:
        from sdfstream.bus.kafka import acl_io

        before, after = acl_io.apply(config, prune=args.prune)
        given = [g for g in before.missing if g not in after.missing]
        taken = [g for g in before.extra if g not in after.extra]
        result["acls"] = {"given": [asdict(g) for g in given], "taken": [asdict(g) for g in taken], **asdict(after)}
        lines += [f"given: {topics_text.grant(g)}" for g in given]
        lines += [f"taken away: {topics_text.grant(g)}" for g in taken]
        lines += [f"left: {line}" for line in topics_text.acls(after)]
    emit(args.json, result, visible.lines(lines or ["nothing to do: all topics are as they must be"]))
    return 0


def _acls(config: KafkaConfig) -> AclState:
    from sdfstream.bus.kafka import acl_io

    return acl_io.compare(config)
