"""``sdfstream archive migrate``: bring an archive to this program's newest tables and views."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sdfstream.cli import edge_io
from sdfstream.errors import ConfigError, SdfError, UnavailableError
from sdfstream.runtime.output_io import emit, progress

if TYPE_CHECKING:
    from sdfstream.archive.engine_io import Engine

HELP = "look after the archive: migrate makes its database, tables and views, or brings them to the newest version"
EXAMPLE = "sdfstream archive migrate --archive http://user@localhost:8123/sdf --wait 60"
_AGAIN_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``migrate``, --archive, --config, --data, --wait."""
    parser.add_argument("what", choices=("migrate",))
    parser.add_argument(
        "--archive",
        metavar="URL|DIR",
        help="http://user@host:8123/database (password: SDFSTREAM_SQL_PASSWORD), or a folder "
        "(default: the settings' archive)",
    )
    parser.add_argument("--config", type=Path, help="settings file (YAML)")
    parser.add_argument("--data", type=Path, help="data folder of an embedded archive (default: ./sdfstream-data)")
    parser.add_argument(
        "--wait", type=float, default=0.0, metavar="S", help="go on asking for so long when no server answers"
    )


def run(args: argparse.Namespace) -> int:
    """Apply what is pending, each migration once; running it again changes nothing."""
    from sdfstream import settings
    from sdfstream.archive.migrate_io import migrate, migrations
    from sdfstream.archive.server_password_io import with_password

    chosen = settings.load(args.config)
    given = with_password(args.archive, None) if args.archive else None
    target = given or chosen.archive or str((args.data or chosen.data) / "archive")
    engine = _opened(target, args.wait)
    try:
        applied = migrate(engine)
        where = str(engine.target)
    finally:
        engine.close()
    newest = migrations()[-1].name
    text = f"{where}: applied {', '.join(applied)}" if applied else f"{where}: nothing to do, it is at {newest}"
    emit(args.json, {"archive": where, "applied": applied, "newest": newest}, text)
    return 0


def _opened(target: str, wait_s: float) -> Engine:
    """The engine, with its database made; asks again while it is away, for at most `wait_s`."""
    from sdfstream.archive.engine_io import Engine

    until_s, reported = edge_io.steady_s() + wait_s, False
    while True:
        try:
            return Engine.open(target, create=True)
        except ConfigError:
            raise
        except SdfError as error:
            # a server that is only starting may refuse a user that is about to be created
            passing = isinstance(error, UnavailableError) or getattr(error, "may_pass", False)
            if not passing or edge_io.steady_s() >= until_s:
                raise
            if not reported:
                progress(f"waiting for the archive: {error}")
                reported = True
            edge_io.wait(_AGAIN_S)
