"""``sdfstream clock``: corrected time, with its bound, from the pages that an agent writes on this machine."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sdfstream import visible
from sdfstream.cli import edge_io
from sdfstream.cli.options import DATA_FOLDER
from sdfstream.runtime.output_io import emit

if TYPE_CHECKING:
    from sdfstream.clock import ClockReader, Now

HELP = "corrected time with [earliest, latest], from this machine's clock pages: now, list, watch"
EXAMPLE = "sdfstream clock now --json"
_FIELDS: Final = ("corrected_ns", "earliest_ns", "latest_ns", "err_ns", "status")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One subcommand per thing to do."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add(actions, "now", _now, "corrected time, once", "sdfstream clock now --clock h03 --page-dir DIR", one=True)
    _add(actions, "list", _list, "every clock that has a page here, and what it is worth", "sdfstream clock list")
    watch = _add(
        actions, "watch", _watch, "corrected time again and again", "sdfstream clock watch --seconds 5", one=True
    )
    watch.add_argument("--seconds", type=float, default=60.0, metavar="S", help="how long (default 60)")
    watch.add_argument("--interval", type=float, default=1.0, metavar="S", help="seconds between lines (default 1)")


def run(args: argparse.Namespace) -> int:
    """Do the chosen action."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _add(
    actions: Any, name: str, act: Callable[[argparse.Namespace], int], text: str, example: str, *, one: bool = False
) -> Any:
    parser = actions.add_parser(
        name,
        help=text,
        description=text,
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="one compact JSON object")
    if one:
        parser.add_argument("--clock", metavar="NAME", help="clock id (default: the one that has a page)")
    parser.add_argument(
        "--page-dir",
        metavar="DIR",
        help=f"folder of the pages (default: where this machine's agent puts them, else {DATA_FOLDER}/clock)",
    )
    parser.set_defaults(act=act)
    return parser


def _now(args: argparse.Namespace) -> int:
    with _reader(args) as reader:
        found = _facts(reader, reader.now())
    emit(args.json, found, _line(found))
    return 0


def _list(args: argparse.Namespace) -> int:
    from sdfstream.clock import ClockError, clocks

    folder = _folder(args.page_dir)
    found = {name: _state(name, folder) for name in clocks(folder)}
    if not found:
        raise ClockError("no-page", str(folder or "nowhere an agent would write"))
    width = max(len(name) for name in found)
    text = visible.lines(
        f"{name:<{width}}  {_line(state) if 'err_ns' in state else state['why']}" for name, state in found.items()
    )
    emit(args.json, {"clocks": list(found.values())}, text)
    return 0


def _watch(args: argparse.Namespace) -> int:
    from sdfstream.clock import ClockError
    from sdfstream.runtime.output_io import progress, say

    seen: list[dict[str, Any]] = []
    refused: dict[str, int] = {}
    ends_s = edge_io.steady_s() + max(0.0, args.seconds)
    with _reader(args) as reader:
        while True:
            try:
                seen.append(_facts(reader, reader.now()))
                line = _line(seen[-1])
            except ClockError as error:
                refused[error.reason] = refused.get(error.reason, 0) + 1
                line = f"no answer: {error}"
            (progress if args.json else say)(line)
            if edge_io.steady_s() + args.interval > ends_s:
                break
            edge_io.wait(max(0.01, args.interval))
    if args.json:
        emit(True, _summary(seen, refused), "")
    return 0


def _reader(args: argparse.Namespace) -> ClockReader:
    from sdfstream.clock import ClockReader

    return ClockReader(args.clock, _folder(args.page_dir))


def _folder(page_dir: str | None) -> Path | None:
    """Folder of the pages; None: the usual folders."""
    from sdfstream.clock import clocks

    if page_dir is not None:
        return Path(page_dir)
    beside = Path(DATA_FOLDER) / "clock"
    return beside if not clocks() and clocks(beside) else None


def _facts(reader: ClockReader, now: Now) -> dict[str, Any]:
    page = reader.page
    return {
        "clock": page.clock,
        **{name: getattr(now, name) for name in _FIELDS},
        "age_ms": round(now.age_ns / 1e6, 1),
        "reference": page.reference,
    }


def _state(name: str, folder: Path | None) -> dict[str, Any]:
    """Time and bound of one clock's page, or why the page is refused."""
    from sdfstream.clock import ClockError, ClockReader

    try:
        with ClockReader(name, folder) as reader:
            return _facts(reader, reader.now())
    except ClockError as error:
        return {"clock": name, "status": error.reason, "why": str(error)}


def _line(found: dict[str, Any]) -> str:
    from sdfstream.board.humanize import duration

    seconds, nanoseconds = divmod(found["corrected_ns"], 1_000_000_000)
    instant = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    against = found["reference"] or "the mean"
    return (
        f"{instant}.{nanoseconds:09d}Z  ± {duration(found['err_ns'])}  {found['status']}, "
        f"{found['clock']} against {against}, estimate {found['age_ms']:.0f} ms old"
    )


def _summary(seen: list[dict[str, Any]], refused: dict[str, int]) -> dict[str, Any]:
    """All answers as one object: the last one, and the spread of the bounds."""
    errors = sorted(found["err_ns"] for found in seen)
    by_status: dict[str, int] = {}
    for found in seen:
        by_status[found["status"]] = by_status.get(found["status"], 0) + 1
    return {
        "n": len(seen),
        "by_status": by_status,
        "refused": refused,
        "err_min_ns": errors[0] if errors else None,
        "err_p50_ns": errors[len(errors) // 2] if errors else None,
        "err_max_ns": errors[-1] if errors else None,
        "age_max_ms": max((found["age_ms"] for found in seen), default=None),
        "last": seen[-1] if seen else None,
    }
