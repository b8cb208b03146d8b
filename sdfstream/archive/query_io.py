"""Queries to an archive through a running pipeline, its folder, or a server."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sdfstream.archive.engine_io import Engine
from sdfstream.archive.failures import UNKNOWN_TABLE, EngineError
from sdfstream.archive.http.endpoint_io import SOCKET, read_endpoint
from sdfstream.archive.target import Folder, Server, parse
from sdfstream.errors import ArchiveError, UnavailableError

ARCHIVE_FOLDER: Final = "archive"
"""Folder of the embedded engine within a data folder."""

_FORMAT: Final = re.compile(r"\bFORMAT\s+([A-Za-z]\w*)\s*(?:SETTINGS\b[^;]*)?$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows of a query, as JSON values."""

    columns: list[str]
    rows: list[dict[str, Any]]


class Console:
    """An open archive to query; in a folder that it opens itself it changes nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, data: str, url: str | None = None) -> Console:
        """The server at `url`; else the pipeline that runs on the folder `data`; else that folder's archive.

        Raises
        ------
        UnavailableError
            There is no archive, or another process has it open and does not answer.
        """
        if url is not None:
            return cls(Engine.open(parse(url)))
        running = read_endpoint(data)
        if running is not None:
            owners = Path(data) / SOCKET
            if owners.exists():
                if not os.access(owners, os.W_OK):
                    raise UnavailableError(
                        f"{owners} is for the user that the pipeline runs as; ask as that user, or over HTTP with the "
                        "token in sql.token beside it"
                    )
                return cls(Engine.open(Server("localhost", 80, database=running.database, socket=owners)))
            return cls(Engine.open(parse(running.url)))  # one of an older release
        folder = Path(data) / ARCHIVE_FOLDER
        if not folder.is_dir():
            raise UnavailableError(f"no archive in {data}: nothing runs there and nothing has been archived there yet")
        engine = Engine.open(Folder(str(folder)))
        try:
            engine.command("SET readonly = 2")  # nothing is changed; a SETTINGS clause is welcome
        except BaseException:
            engine.close()
            raise
        return cls(engine)

    def text(self, sql: str, fmt: str) -> bytes:
        """What `sql` prints in ClickHouse's format `fmt`; a FORMAT clause in `sql` comes first."""
        statement = _bare(sql)
        return self._ask(statement, None if has_format(statement) else fmt)

    def answer(self, sql: str) -> QueryResult:
        """The rows of `sql`."""
        statement = _bare(sql)
        if has_format(statement):
            raise ArchiveError("a FORMAT clause and --json exclude each other")
        printed = self._ask(statement, "JSON")
        if not printed.strip():
            return QueryResult([], [])
        found = json.loads(printed)
        return QueryResult([c["name"] for c in found["meta"]], found["data"])

    def catalogue(self) -> list[tuple[str, str]]:
        """Every view and table with its one-line description, views first."""
        rows = self._engine.rows(
            "SELECT name, comment FROM system.tables WHERE database = currentDatabase() AND NOT is_temporary"
            " ORDER BY engine != 'View', name"
        )
        return [(str(name), str(comment)) for name, comment in rows]

    def close(self) -> None:
        """Let go of the archive."""
        self._engine.close()

    def _ask(self, statement: str, fmt: str | None) -> bytes:
        try:
            return self._engine.raw(statement, fmt)
        except EngineError as error:
            if error.code != UNKNOWN_TABLE:
                raise
            names = ", ".join(name for name, _ in self.catalogue())
            raise EngineError(f"{error}. There are: {names}", error.code) from error


def has_format(sql: str) -> bool:
    """Whether a statement ends with its own FORMAT clause.

    >>> has_format("SELECT 1 FORMAT JSON"), has_format("SELECT format FROM x")
    (True, False)
    """
    return _FORMAT.search(sql) is not None


def _bare(sql: str) -> str:
    statement = sql.strip().rstrip(";").rstrip()
    if not statement:
        raise ArchiveError("the query is empty")
    return statement
