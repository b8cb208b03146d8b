"""``sdfstream silence SUBJECT``: tell nobody of findings about something for a time; ``--list``, ``--lift ID``."""

from __future__ import annotations

import argparse
from typing import Any, Final

from sdfstream import visible
from sdfstream.board import notes_text
from sdfstream.board.humanize import seconds
from sdfstream.cli import edge_io, operator
from sdfstream.cli.options import add_past, ask, heading
from sdfstream.errors import ConfigError, FormatError
from sdfstream.records.finding import FINDING_KINDS
from sdfstream.records.silences import LIFT, MOST_TEXT, SILENCE, SUBJECTS, named
from sdfstream.records.units import NS_PER_S
from sdfstream.serve import overrides_io

HELP = "tell nobody of findings about something for a time, or of a maintenance; list silences, end one early"
EXAMPLE = "sdfstream silence host:h03 --for 2h --maintenance --reason firmware"
USUAL_S: Final = 3600.0
LONGEST_S: Final = 7 * 86_400.0
"""From the word to its end: also of a silence that is planned."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The subject, or --list, or --lift; how long, of what and why; and the options of every override."""
    parser.add_argument(
        "subject", nargs="?", help=f"all, or TYPE:NAME, as in nic:h03/r1; types: {', '.join(SUBJECTS[:-1])}"
    )
    parser.add_argument("--list", action="store_true", help="those that are planned or in force, and recent ones")
    parser.add_argument("--lift", metavar="ID", help="end the silence (or hold) of this id early")
    parser.add_argument("--for", dest="lasts", metavar="TIME", help="how long (default 1h; it ends within 7d)")
    parser.add_argument("--from", dest="begins", metavar="TIME", help="from then on: in 2h, or 2027-01-15T08:00:00Z")
    parser.add_argument("--kind", action="append", default=[], help="only findings of this kind; may stand repeatedly")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; shown wherever a finding is silenced")
    parser.add_argument(
        "--maintenance", action="store_true", help="the loop starts nothing new there meanwhile (else it goes on)"
    )
    operator.add_arguments(parser)
    add_past(parser)


def run(args: argparse.Namespace) -> int:
    """List, or sign, send and print the outcome; exit 2 without one, or when it is a refusal."""
    if sum((bool(args.subject), args.list, args.lift is not None)) != 1:
        raise ConfigError("name one subject (nic:h03/r1, host:h03, all, …), or give --list, or --lift ID")
    if args.list:
        return _list(args)
    if args.at is not None or args.url is not None:
        raise ConfigError("--at and --url are of --list")
    if args.lift is not None and (args.lasts or args.begins or args.kind or args.reason or args.maintenance):
        raise ConfigError("--lift ends a silence: it takes no other option of one")
    now_ns = edge_io.now_ns()
    if args.lift is not None:
        session, target = operator.session(args), {"type": "override", "id": args.lift}
        made = overrides_io.signed(session, LIFT, now_ns, overrides_io.SHORT_S, target=target)
    else:
        lasts_s, target, set_ = asked(args, now_ns)
        session = operator.session(args)
        made = overrides_io.signed(session, SILENCE, now_ns, lasts_s, target=target, set_=set_)
    return operator.send_and_report(args, session, [made])


def asked(args: argparse.Namespace, now_ns: int) -> tuple[float, dict[str, str], dict[str, Any]]:
    """How long the override has force, its target, and what it sets; ConfigError with a sentence."""
    kind, _, name = args.subject.partition(":")
    try:
        kind, name = named(kind, name)
    except FormatError as error:
        allowed = ", ".join(f"{t}:NAME" for t in SUBJECTS[:-1])
        raise ConfigError(f"{args.subject!r} is no subject; write {allowed} or all") from error
    for one in args.kind:
        if one not in FINDING_KINDS:
            raise ConfigError(f"no kind {one!r} of findings; there are {', '.join(FINDING_KINDS)}")
    if len(args.reason) > MOST_TEXT:
        raise ConfigError(f"--reason has more than {MOST_TEXT} characters")
    set_: dict[str, Any] = {"reason": args.reason, "maintenance": args.maintenance}
    set_ |= {"kinds": list(dict.fromkeys(args.kind))} if args.kind else {}
    lasts_s, ahead_s = _seconds("--for", args.lasts, USUAL_S), 0.0
    if args.begins is not None:
        set_["from_at_ns"] = _begins(args.begins, now_ns)
        ahead_s = (set_["from_at_ns"] - now_ns) / NS_PER_S
    if lasts_s <= 0 or ahead_s + lasts_s > LONGEST_S:
        raise ConfigError("a silence lasts longer than no time, and ends within 7d from now, planned or not")
    return ahead_s + lasts_s, {"type": kind, "id": name}, set_


def _begins(text: str, now_ns: int) -> int:
    """When a planned silence begins, ns since the Unix epoch."""
    words = text.removeprefix("in").strip()
    try:
        return now_ns + round(seconds(words) * NS_PER_S)
    except ValueError:
        pass
    from sdfstream.serve import past_io

    try:
        from_at_ns = past_io.instant(text)
    except ConfigError:
        raise ConfigError(f"--from: {text!r} is no instant; write 2h (from now) or 2027-01-15T08:00:00Z") from None
    if from_at_ns < now_ns:
        raise ConfigError("--from lies in the past; leave it out to begin now")
    return from_at_ns


def _seconds(option: str, text: str | None, usual_s: float) -> float:
    try:
        return usual_s if text is None else seconds(text)
    except ValueError as error:
        raise ConfigError(f"{option}: {error}") from error


def _list(args: argparse.Namespace) -> int:
    from sdfstream.runtime.output_io import emit

    answer = ask(args, {"want": "silences"})
    now_ns = int(answer["at_ns"])
    silences = sorted(answer["silences"], key=lambda s: (s["state"] not in ("in-force", "planned"), -s["said_at_ns"]))
    text = visible.lines(notes_text.line_of(s, now_ns) for s in silences) or "no silences"
    emit(args.json, {"at_ns": now_ns, "source": answer["source"], "silences": silences}, heading(answer) + text)
    return 0
