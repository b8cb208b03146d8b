"""Bring an archive to the newest migration, and set or lift its time to live."""

from __future__ import annotations

import re
from importlib import resources
from typing import Final

from sdfstream.archive import migration, tables
from sdfstream.archive.engine_io import Engine
from sdfstream.archive.migration import Migration
from sdfstream.records.topics import ARCHIVED

_TTL: Final = re.compile(r" TTL (.+?)(?: SETTINGS |$)")


def migrations() -> list[Migration]:
    """The migrations shipped in this package."""
    folder = resources.files("sdfstream.archive") / "migrations"
    return migration.read({f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".sql")})


def migrate(engine: Engine) -> list[str]:
    """Apply what is pending, each once, and record it; returns the names applied.

    A crash in between repeats the interrupted migration at the next start, which its statements allow.
    """
    engine.command(migration.LEDGER_SQL)
    applied = {v: (n, d) for v, n, d in engine.rows(f"SELECT version, name, digest FROM {migration.LEDGER}")}
    todo = migration.pending(migrations(), applied)
    for step in todo:
        for statement in step.statements:
            condition = migration.guard(statement)
            if condition is None or engine.rows(condition)[0][0]:
                engine.command(statement)
        row = f"({step.version}, '{step.name}', '{step.digest}')"
        engine.command(f"INSERT INTO {migration.LEDGER} (version, name, digest) VALUES {row}")
    return [step.name for step in todo]


def set_ttl(engine: Engine, hours: float | None) -> None:
    """Let raw and derived rows go `hours` after their bus_at (wall clock!); None keeps them for good.

    States, findings, commands and their outcomes always stay: they are few, the latest of a state is what is true
    now, and what was commanded is a record of who did what and why.
    """
    wanted = "" if hours is None else f"toDateTime(bus_at) + toIntervalSecond({round(hours * 3600)})"
    for table in _aging_tables():
        sql = "SELECT engine_full FROM system.tables WHERE database = currentDatabase() AND name = {t:String}"
        found = _TTL.search(str(engine.rows(sql, {"t": table})[0][0]))
        present = found.group(1) if found else ""
        if present == wanted:
            continue
        engine.command(f"ALTER TABLE {table} MODIFY TTL {wanted}" if wanted else f"ALTER TABLE {table} REMOVE TTL")


def _aging_tables() -> list[str]:
    names = [tables.table_of(topic) for topic in ARCHIVED]
    return [name for name in names if name.startswith(("raw_", "derived_"))] + [tables.REJECT_TABLE]
