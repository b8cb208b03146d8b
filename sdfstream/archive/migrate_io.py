"""Bring an archive to the newest migration, and set the retention of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from typing import Final

from sdfstream.archive import migration
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migrate_lock_io import migration_lock
from sdfstream.archive.migration import Migration
from sdfstream.archive.retention import AGING, Retention, seconds
from sdfstream.archive.sqltext import literal
from sdfstream.archive.target import Folder
from sdfstream.errors import ArchiveError

_PATIENCE_S: Final = 6 * 3600
_REPLAYED: Final = "replayed"


def migrations() -> list[Migration]:
    """The migrations shipped in this package."""
    folder = resources.files("sdfstream.archive") / "migrations"
    return migration.read({f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".sql")})


def migrate(engine: Engine, steps: Sequence[Migration] | None = None) -> list[str]:
    """Apply pending migrations, each once, and record them; returns their names.

    A crash in between repeats the interrupted migration at the next start, which its statements allow. Processes that
    share a server wait for each other.

    Raises
    ------
    ArchiveError
        The archive was made by a newer sdfstream, or a migration was changed after it had been applied.
    """
    ours = migrations() if steps is None else steps
    if not _pending(engine, ours):
        return []
    with migration_lock(engine) as check_held, _patient(engine) as engine:
        todo = _pending(engine, ours)
        for step in todo:
            for statement in step.statements:
                check_held()
                condition = migration.guard(statement)
                if condition is None or engine.rows(condition)[0][0]:
                    engine.command(statement)
            row = f"({step.version}, '{step.name}', '{step.digest}')"
            engine.command(f"INSERT INTO {migration.LEDGER} (version, name, digest) VALUES {row}")
    return [step.name for step in todo]


@contextmanager
def _patient(engine: Engine) -> Iterator[Engine]:
    """A handle that waits for a statement that rewrites a server's table: one given up half-way is repeated."""
    if isinstance(engine.target, Folder):
        yield engine
        return
    with Engine.open(engine.target, patience_s=_PATIENCE_S) as patient:
        yield patient


def _pending(engine: Engine, ours: Sequence[Migration]) -> list[Migration]:
    engine.command(migration.LEDGER_SQL)
    applied = {v: (n, d) for v, n, d in engine.rows(f"SELECT version, name, digest FROM {migration.LEDGER}")}
    return migration.pending(ours, applied)


def set_retention(engine: Engine, retention: Retention | None, *, replay: str | None = None) -> Retention | None:
    """Set how long tables keep their rows (None: for good); returns what is in force. `expiry_io.Expiry` goes by it.

    Old rows of a replay would go at once. So an archive with rows that age takes no replay, and one that holds a
    replay ages no more.

    Parameters
    ----------
    engine : Engine
    retention : Retention | None
    replay : str, optional
        Names the replay that is about to be written; then no row ages, whatever `retention` says.

    Raises
    ------
    ArchiveError
        A replay into an archive whose rows age.
    """
    present = {name: int(s) for name, s in engine.rows("SELECT name, seconds FROM retention FINAL")}
    if replay is not None:
        _refuse_where_rows_age(engine, [table for table, limit_s in present.items() if limit_s])
        engine.command(f"INSERT INTO {_REPLAYED} (bus_id) VALUES ({literal(replay)})")
    if retention is not None and engine.rows(f"SELECT count() > 0 FROM {_REPLAYED}")[0][0]:
        retention = None
    wanted = {aging.table: seconds(aging, retention) for aging in AGING}
    changed = {table: limit_s for table, limit_s in wanted.items() if present.get(table, 0) != limit_s}
    if changed:
        rows = ", ".join(f"({literal(table)}, {limit_s})" for table, limit_s in changed.items())
        engine.command(f"INSERT INTO retention (name, seconds) VALUES {rows}")
    return retention


def _refuse_where_rows_age(engine: Engine, aging: Sequence[str]) -> None:
    sql = (
        "SELECT ifNull(sum(total_rows), 0) FROM system.tables"
        " WHERE database = currentDatabase() AND has({names:Array(String)}, name)"
    )
    if aging and engine.rows(sql, {"names": list(aging)})[0][0]:
        raise ArchiveError(
            f"the archive in {engine.target} holds live rows, which go by their age, and those of a replay would"
            " go at once: replay into a folder or database of its own"
        )
