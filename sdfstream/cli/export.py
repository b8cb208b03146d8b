"""``sdfstream export``: topics, tables and views as Parquet files."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdfstream import visible
from sdfstream.cli import edge_io
from sdfstream.cli.options import add_data_folder, add_server, server_url
from sdfstream.errors import ConfigError, SdfError
from sdfstream.runtime.output_io import emit, end_progress, show_progress

if TYPE_CHECKING:
    from sdfstream.client import Fabric

HELP = "write topics, tables and views as Parquet files; without names, list what there is"
EXAMPLE = "sdfstream export sdf.derived.owd.v1 v_findings --out exported --since 10m --where nic=h01/r0"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """NAME…, --out, where from, which rows."""
    parser.add_argument("names", metavar="NAME", nargs="*", help="topics (sdf.…), tables and views")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for NAME.parquet")
    parser.add_argument("--replace", action="store_true", help="write over files that are there")
    origin = parser.add_argument_group("where from")
    add_data_folder(origin)
    topics = origin.add_mutually_exclusive_group()
    topics.add_argument("--recording", type=Path, metavar="DIR", help="topics of this recording (default: --data's)")
    topics.add_argument("--bus", metavar="kafka://HOST:PORT", help="topics of this bus, as far back as it retains them")
    parser.add_argument("--config", type=Path, help="settings file (YAML), for its kafka part")
    add_server(origin, "tables and views of a ClickHouse server")
    which = parser.add_argument_group("which rows")
    which.add_argument("--since", metavar="TIME", help="from then on: 10m (ago), or 2027-01-15T08:00:00Z")
    which.add_argument("--until", metavar="TIME", help="before then")
    which.add_argument(
        "--where", metavar="nic=ID|job=NAME", action="append", default=[], help="about it only; repeatable"
    )


def run(args: argparse.Namespace) -> int:
    """Write the files, or list the names."""
    from sdfstream import settings
    from sdfstream.client import Fabric
    from sdfstream.client.choice import Choice
    from sdfstream.client.export_io import export
    from sdfstream.serve.past_io import instant

    since, until = (None if text is None else instant(text) for text in (args.since, args.until))
    choice = Choice.where(since, until, args.where)
    kafka = settings.load(args.config).kafka if args.bus else None
    with Fabric(args.data, recording=args.recording, bus=args.bus, kafka=kafka, url=server_url(args)) as fabric:
        if not args.names:
            return _list(fabric, args.json)
        if args.out is None:
            raise ConfigError("give --out DIR, the folder for the files")
        began_s = edge_io.steady_s()
        done = list(
            export(
                fabric, args.names, args.out, choice,
                replace=args.replace, progress=lambda name, rows: show_progress(f"{name}: {rows:,} rows"),
            )
        )  # fmt: skip
        took_s = edge_io.steady_s() - began_s
    end_progress()
    files = [
        {"name": f.name, "path": str(f.path), "rows": f.rows, "bytes": f.size_bytes, "refused": f.refused} for f in done
    ]
    lines = [f"{f.rows:>12,} rows {f.size_bytes / 1e6:>9.1f} MB  {f.path}" for f in done]
    lines += [f"refused of {f.name}: {n} {reason}" for f in done for reason, n in f.refused.items()]
    rows = sum(f.rows for f in done)
    emit(args.json, {"files": files, "rows": rows, "seconds": round(took_s, 3)}, visible.lines(lines))
    return 0


def _list(fabric: Fabric, as_json: bool) -> int:
    """What can be exported; a side that cannot be opened is left out with the reason, unless neither can."""
    found: dict[str, list[str]] = {}
    reasons = []
    for side, names in (("topics", fabric.topics), ("tables", lambda: fabric.tables()["name"].to_list())):
        try:
            found[side] = list(names())
        except SdfError as error:
            reasons.append(str(error))
    if not found:
        raise ConfigError("; ".join(reasons))
    lines = [name for names in found.values() for name in names] + [f"({reason})" for reason in reasons]
    emit(as_json, {**found, "n": sum(map(len, found.values()))}, visible.lines(lines))
    return 0
