"""Shared by the verbs that send overrides (approve, undo, policy): options, operator, printed answer."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sdfstream import visible
from sdfstream.board.humanize import clock_time
from sdfstream.cli.options import add_data_folder
from sdfstream.errors import ConfigError
from sdfstream.records.silences import SILENCE
from sdfstream.serve import operator_keys_io
from sdfstream.serve.overrides_io import WAIT_S, OperatorSession, report, send

if TYPE_CHECKING:
    from sdfstream.bus.kafka.config import KafkaConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of every verb that sends an override."""
    add_data_folder(parser)
    parser.add_argument("--bus", metavar="kafka://HOST:PORT", help="by Kafka instead of the data folder's pipeline")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (YAML), for --bus: its kafka part")
    parser.add_argument("--key", type=Path, metavar="FILE", help="signing key (default: DIR/keys/operator.key)")
    parser.add_argument("--wait", type=float, default=WAIT_S, metavar="S", help="for an answer (default %(default)g s)")


def session(args: argparse.Namespace) -> OperatorSession:
    """The operator that the options name; raises ConfigError without a usable key."""
    data = Path(args.data)
    if args.wait < 0:
        raise ConfigError("--wait must not be negative")
    signer, kafka = operator_keys_io.read(data, args.key), _kafka(args.config) if args.bus else None
    return OperatorSession(data, signer, operator_keys_io.user(), args.bus, args.wait, kafka)


def _kafka(file: Path | None) -> KafkaConfig:
    from sdfstream import settings  # imports pydantic, which the data folder's socket does not need

    return settings.load(file).kafka


def send_and_report(args: argparse.Namespace, session: OperatorSession, overrides: Sequence[Mapping[str, Any]]) -> int:
    """Send, wait, print; exit 0 when every override was answered and none refused."""
    from sdfstream.runtime.output_io import complain, emit

    answers = send(session, overrides)
    text = visible.lines(_line(o, answers.get(str(o["id"]))) for o in overrides)
    emit(args.json, report(overrides, answers), text)
    silent = [str(o["id"]) for o in overrides if str(o["id"]) not in answers]
    if silent:
        complain(
            f"sdfstream {args.verb}: no outcome of {', '.join(silent)} within {session.wait_s:g} s; "
            "it is on the bus, but no controller answered (does one run?)",
        )
    done = all(a["state"] not in ("refused", "failed") for a in answers.values())
    return 0 if done and not silent else 2


def _line(override: Mapping[str, Any], outcome: Mapping[str, Any] | None) -> str:
    about = f"{override['what']} {override['command']}".strip()
    if outcome is None:
        return f"{about}: sent, no answer ({override['id']})"
    when = f" at {clock_time(int(outcome['at_ns']))}" if isinstance(outcome.get("at_ns"), int) else ""
    line = f"{about}: {outcome['state']} by {outcome.get('host', '?')}{when}: {outcome.get('why') or 'no reason given'}"
    return f"{line} ({override['id']})" if override["what"] == SILENCE else line  # its id lifts it
