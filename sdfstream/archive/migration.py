"""Migrations, their statements, and those that an archive still needs. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sdfstream.errors import ArchiveError

_FILE: Final = re.compile(r"^(\d{4})_([a-z0-9_]+)\.sql$")
_GUARD: Final = re.compile(r"^-- only if: (.+)$", re.MULTILINE)

LEDGER: Final = "migration"
LEDGER_SQL: Final = f"""
CREATE TABLE IF NOT EXISTS {LEDGER}
(
    version UInt32 COMMENT 'number at the head of the file''s name',
    name String COMMENT 'file name',
    digest String COMMENT 'SHA-256 of the file',
    applied_at DateTime64(3, 'UTC') DEFAULT now64(3) COMMENT 'when it was applied'
)
ENGINE = MergeTree ORDER BY version COMMENT 'Migrations applied to this database.'
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One file ``NNNN_name.sql``; its statements may be repeated without harm (``IF NOT EXISTS``, ``OR REPLACE``)."""

    version: int
    name: str
    sql: str

    @property
    def digest(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def statements(self) -> list[str]:
        """The statements; each ends with a semicolon at the end of a line."""
        statements = (s.strip() for s in re.split(r";[ \t]*$", self.sql, flags=re.MULTILINE))
        return [s for s in statements if _without_comments(s)]


def guard(statement: str) -> str | None:
    """The question of a comment ``-- only if: SELECT …`` in a statement, which then runs only if the answer is true.

    >>> guard("-- only if: SELECT count() FROM a")
    'SELECT count() FROM a'
    """
    found = _GUARD.search(statement)
    return found.group(1) if found else None


def read(files: Mapping[str, str]) -> list[Migration]:
    """Migrations from file names and contents, by number.

    Raises
    ------
    ArchiveError
        A name is not ``NNNN_name.sql``, or the numbers are not 1, 2, 3, ….
    """
    migrations = []
    for name, sql in files.items():
        match = _FILE.match(name)
        if not match:
            raise ArchiveError(f"{name} is not a migration's name (NNNN_name.sql)")
        migrations.append(Migration(int(match.group(1)), name, sql))
    migrations.sort(key=lambda m: m.version)
    if [m.version for m in migrations] != list(range(1, len(migrations) + 1)):
        raise ArchiveError(f"migrations are not numbered 1 to {len(migrations)}: {[m.name for m in migrations]}")
    return migrations


def pending(migrations: Sequence[Migration], applied: Mapping[int, tuple[str, str]]) -> list[Migration]:
    """Those of `migrations` that `applied` (version → name, digest) lacks.

    Raises
    ------
    ArchiveError
        An applied one differs from ours, or the database is ahead of this program.
    """
    ours = {m.version: m for m in migrations}
    ahead = sorted(applied.keys() - ours.keys())
    if ahead:
        raise ArchiveError(
            f"the archive has migration {applied[ahead[-1]][0]}, which this sdfstream does not know:"
            " the archive was made by a newer one"
        )
    for version, (name, digest) in sorted(applied.items()):
        if digest != ours[version].digest:
            raise ArchiveError(f"migration {name} was changed after it had been applied to this archive")
    return [m for m in migrations if m.version not in applied]


def _without_comments(statement: str) -> str:
    return "\n".join(line for line in statement.splitlines() if not line.lstrip().startswith("--")).strip()
