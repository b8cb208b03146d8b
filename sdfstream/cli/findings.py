"""``sdfstream findings``: list findings, or one with its evidence and remedy."""

from __future__ import annotations

import argparse

from sdfstream import visible
from sdfstream.board.humanize import seconds
from sdfstream.cli.options import add_data_folder, add_past, ask, heading
from sdfstream.errors import ConfigError

HELP = "what broke, where, why and what to do: list, filter, or one finding in full"
EXAMPLE = "sdfstream findings --open --since 10m"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of the verb."""
    add_data_folder(parser)
    parser.add_argument("id", nargs="?", help="show this finding in full (the beginning of its id is enough)")
    parser.add_argument("--open", action="store_true", help="only those not resolved")
    parser.add_argument("--since", metavar="TIME", help="only those that began at most this long ago: 30s, 10m, 2h")
    parser.add_argument("--kind", help="only this kind, such as nic-down or congestion")
    add_past(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the pipeline once; where none runs, the archive."""
    from sdfstream.board.findings_text import detail_of, line_of, select
    from sdfstream.runtime.output_io import emit

    since_s = _since(args.since)
    answer = ask(args, {"want": "findings"})
    now_ns, known_ns = int(answer["at_ns"]), answer.get("known_at_ns")
    found = select(answer["findings"], now_ns, open_only=args.open, since_s=since_s, kind=args.kind)
    if args.id:
        found = [f for f in found if str(f["id"]).startswith(args.id)]
        if not found:
            raise ConfigError(f"no finding has an id that begins with {args.id!r}; see sdfstream findings")
        text = "\n\n".join(detail_of(f, now_ns, known_ns) for f in found)
    else:
        text = visible.lines(line_of(f, now_ns, known_ns) for f in found) or "no findings"
    result = {"at_ns": now_ns, "known_at_ns": known_ns, "source": answer["source"], "findings": found}
    emit(args.json, result, heading(answer) + text)
    return 0


def _since(text: str | None) -> float | None:
    try:
        return None if text is None else seconds(text)
    except ValueError as error:
        raise ConfigError(f"--since: {error}") from error
