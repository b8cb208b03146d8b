"""``sdfstream policy``: what the loop may do: show it, change its mode, hold a target, make the operator's key."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream import visible
from sdfstream.board.humanize import clock_time, duration, seconds
from sdfstream.cli import edge_io, operator
from sdfstream.errors import ConfigError
from sdfstream.records.command import MODES
from sdfstream.serve import operator_keys_io, overrides_io

HELP = "what the loop may do: show, change the mode (observe stops it), hold a target, make the operator's key"
EXAMPLE = "sdfstream policy mode observe"
HOLD_S: Final = 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What, with its argument; --for and the options of every override."""
    parser.add_argument("what", choices=("show", "mode", "hold", "keygen"))
    parser.add_argument("value", nargs="?", help=f"mode: {', '.join(MODES)}; hold: QP id, job:NAME, host:NAME or all")
    parser.add_argument("--for", dest="lasts", metavar="TIME", help="of a hold (default 1h, at most 7d)")
    operator.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Show, or sign, send and print the outcome."""
    if args.what == "show":
        return _show(args)
    if args.what == "keygen":
        return _keygen(args)
    if not args.value:
        raise ConfigError(f"policy {args.what} needs a {'mode' if args.what == 'mode' else 'target'}")
    session, now_ns = operator.session(args), edge_io.now_ns()
    if args.what == "mode":
        if args.value not in MODES:
            raise ConfigError(f"no mode {args.value!r}; there are {', '.join(MODES)}")
        if args.lasts is not None:
            raise ConfigError("a mode stays until it is changed or the controller starts anew; --for is for holds")
        made = overrides_io.signed(session, "mode", now_ns, overrides_io.SHORT_S, set_={"mode": args.value})
    else:
        made = overrides_io.signed(session, "hold", now_ns, _lasts(args, HOLD_S), target=target_of(args.value))
    return operator.send_and_report(args, session, [made])


def target_of(text: str) -> dict[str, str]:
    """The target that `text` names.

    >>> target_of("h00/r0#17"), target_of("job:train-7")
    ({'type': 'qp', 'id': 'h00/r0#17'}, {'type': 'job', 'id': 'train-7'})
    """
    if text == "all":
        return {"type": "all", "id": "*"}
    kind, colon, name = text.partition(":")
    if colon and kind in ("job", "host", "qp") and name:
        return {"type": kind, "id": name}
    if "#" in text:
        return {"type": "qp", "id": text}
    raise ConfigError(f"{text!r} is no target; write a QP id (h00/r0#17), job:NAME, host:NAME or all")


def text_of(policy: Mapping[str, Any]) -> str:
    """Mode, holds, commands in force and trusted operators, line by line."""
    now_ns = int(policy["at_ns"])
    lines = [f"mode                   {policy.get('mode', 'not told')}"]
    if by := policy.get("mode_by"):
        lines[0] += f", by {by['operator']} since {clock_time(int(by['at_ns']))}"
        lines[0] += f" (in the settings {policy.get('mode_in_settings', 'not told')}, which a restart brings back)"
    holds = [o for o in policy.get("overrides", ()) if o["what"] == "hold"]
    for hold in holds:
        left = duration(int(hold["expires_at_ns"]) - now_ns)
        target = f"{hold['target'].get('type')} {hold['target'].get('id')}"
        lines.append(f"held                   {target}, {left} more (by {hold['operator']}, {hold['id']})")
    lines.append(f"commands in force      {policy.get('in_force', 0)}, {policy.get('waiting', 0)} wait for approval")
    lines.append(f"operators trusted      {', '.join(policy.get('operators', ())) or 'none'}")
    return visible.lines(lines)


def _show(args: argparse.Namespace) -> int:
    from sdfstream.runtime.output_io import emit
    from sdfstream.serve.query_io import fetch

    policy = fetch(Path(args.data), {"want": "policy"})
    emit(args.json, policy, text_of(policy))
    return 0


def _keygen(args: argparse.Namespace) -> int:
    from sdfstream.runtime.output_io import emit

    public = operator_keys_io.make(Path(args.data))
    key = operator_keys_io.key_path(Path(args.data))
    key_id = operator_keys_io.read(Path(args.data)).key_id
    text = f"key {key_id}: {key} (keep it to yourself), public key {public}"
    emit(args.json, {"key": str(key), "public": str(public), "key_id": key_id}, text)
    return 0


def _lasts(args: argparse.Namespace, default_s: float) -> float:
    try:
        return default_s if args.lasts is None else seconds(args.lasts)
    except ValueError as error:
        raise ConfigError(f"--for: {error}") from error
