"""Queries from many threads to the chDB engine of this process: a fresh handle for each, every resource bounded.

A handle costs a millisecond; it starts without the settings, database and limits of the question before. Two layers
keep a reader to the archive, and each forbids every file, address and schema by itself: what is asked is held against
lists of what may be asked (`allowlist`, `guard`), and the handle has only the reader's role in the engine, which is in
read-only mode before the question runs (`engine_options`).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.archive.engine_options import READER, connection_string
from sdfstream.archive.failures import (
    ABORTED,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    UNKNOWN_DATABASE,
    EngineError,
)
from sdfstream.archive.http import allowlist, guard
from sdfstream.archive.http.access import Caller
from sdfstream.archive.http.engine_calls_io import (
    DEFAULT_FORMAT,
    insert,
    lexed,
    native_header,
    parsed,
    query,
    summary,
)
from sdfstream.archive.http.query import SqlRequest, split_insert
from sdfstream.archive.sqltext import literal, quoted
from sdfstream.errors import UnavailableError


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """Bounds of the front; a query may ask for less, never for more."""

    queries: int = 4
    """Running at the same time over TCP; a further one waits `wait_s` for its turn, then is refused."""
    owner_queries: int = 2
    """As many more at the owner's socket, so that clients with a token never keep the owner out."""
    wait_s: float = 10.0
    seconds: int = 60
    """Running time of one query."""
    result_bytes: int = 256 << 20
    memory_bytes: int = 2 << 30
    body_bytes: int = 256 << 20
    """Largest request."""


@dataclass(frozen=True, slots=True)
class Reply:
    """The engine's answer."""

    body: bytes
    format: str | None
    """The format of `body`; None when the statement has no result (DDL, INSERT)."""
    summary: str
    """ClickHouse's X-ClickHouse-Summary."""


_NO_ROLES: Final = "the engine of this process runs without sdfstream's users and roles"


class Front:
    """The engine behind the HTTP front.

    Parameters
    ----------
    path : str
        The folder that the archive's writer of this process has open.
    database : str
        Database of a query that names none.
    """

    def __init__(self, path: str, database: str, limits: FrontLimits) -> None:
        import chdb

        self._connect = chdb.connect
        self._path = connection_string(os.path.realpath(path))  # the engine compares paths as text
        self._database = database
        self._limits = limits
        self._closed = False
        self._turns = threading.BoundedSemaphore(limits.queries)
        self._owner_turns = threading.BoundedSemaphore(limits.owner_queries)
        try:
            self._base = self._connect(self._path)
        except RuntimeError as error:
            raise UnavailableError(f"the archive in {path} cannot be opened for questions: {error}") from error
        try:
            with self._handle() as handle:
                query(handle, f"SET ROLE {READER}")
        except EngineError as error:
            self._base.close()
            raise UnavailableError(f"{_NO_ROLES}, so it cannot be opened for questions: {error}") from error

    def answer(self, request: SqlRequest, caller: Caller) -> Reply:
        """Run one question.

        Raises
        ------
        EngineError
            The engine's refusal or ours, with ClickHouse's code.
        """
        writable = caller is Caller.WRITER and request.method == "POST"
        turns = self._owner_turns if caller is Caller.OWNER else self._turns
        if not turns.acquire(timeout=self._limits.wait_s):
            most = self._limits.owner_queries if caller is Caller.OWNER else self._limits.queries
            raise EngineError(f"{most} queries already run", TOO_MANY_SIMULTANEOUS_QUERIES)
        try:
            if self._closed:
                raise EngineError("the archive is closing", ABORTED)
            with self._handle() as handle:
                return self._written(handle, request) if writable else self._read(handle, request)
        finally:
            turns.release()

    def close(self, wait_s: float = 5.0) -> None:
        """Wait a little for running questions, then let go of the engine."""
        self._closed = True
        for turns, most in ((self._turns, self._limits.queries), (self._owner_turns, self._limits.owner_queries)):
            ended = [turns.acquire(timeout=wait_s) for _ in range(most)]
            for _ in filter(None, ended):
                turns.release()
        self._base.close()

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        handle = self._connect(self._path)
        try:
            yield handle
        finally:
            handle.close()

    def _read(self, handle: Any, request: SqlRequest) -> Reply:
        """What a reader asks: nothing runs before the handle has the reader's role."""
        query(handle, f"SET ROLE {READER}")
        settings = allowlist.check_settings(request.settings)
        statement = guard.check(request.sql, lexed(handle, request.sql))
        canonical, tokens = parsed(handle, request.sql)
        found = guard.check(canonical, tokens)
        guard.check_parameters(found, request.parameters)
        allowlist.refuse_schemas(found.words)
        fmt = allowlist.check_format(found.format or request.default_format or DEFAULT_FORMAT)
        self._use(handle, request.database)
        for name, value in self._capped(settings).items():
            query(handle, f"SET {name} = {literal(value)}")
        return _answered(handle, statement, fmt, request)

    def _written(self, handle: Any, request: SqlRequest) -> Reply:
        """What a writer asks: any single statement, an insert with rows among them."""
        settings = allowlist.check_settings(request.settings, writable=True)
        statement = guard.check(request.sql, lexed(handle, request.sql), writable=True)
        self._use(handle, request.database)
        for name, value in settings.items():
            query(handle, f"SET {name} = {literal(value)}")
        found = split_insert(request.sql) if request.data is not None else None
        if found is not None and request.data is not None:
            result = insert(handle, found.head, found.settings, found.format, request.data)
            return Reply(b"", None, summary(result, written=True))
        return _answered(handle, statement, statement.format or request.default_format or DEFAULT_FORMAT, request)

    def _use(self, handle: Any, database: str | None) -> None:
        try:
            query(handle, f"USE {quoted(database or self._database)}")
        except EngineError as error:
            if database is not None or error.code != UNKNOWN_DATABASE:
                raise  # before the first migration the default database does not exist; a query that names none may run

    def _capped(self, asked: Mapping[str, str]) -> dict[str, str]:
        """The question's settings within the limits; read-only last, since nothing can be set after it."""
        caps = {
            "max_execution_time": self._limits.seconds,
            "max_result_bytes": self._limits.result_bytes,
            "max_memory_usage": self._limits.memory_bytes,
        }
        capped = {k: str(_within(asked.get(k), most)) for k, most in caps.items()}
        return {**asked, **capped, "result_overflow_mode": "throw", "timeout_overflow_mode": "throw", "readonly": "1"}


def _answered(handle: Any, statement: guard.Statement, fmt: str, request: SqlRequest) -> Reply:
    parameters = dict(request.parameters)
    result = query(handle, statement.sql, fmt, parameters)
    body = bytes(result.bytes() or b"")
    if not body and statement.verb not in guard.READS:
        return Reply(b"", None, summary(result))
    if not body and fmt == "Native" and statement.verb in ("SELECT", "WITH", "FROM"):
        body = native_header(handle, statement.query, parameters)
    return Reply(body, fmt, summary(result))


def _within(asked: str | None, most: int) -> int:
    """The asked number if it is one from 1 to `most`; else `most` (0 means unlimited in ClickHouse)."""
    try:
        number = int(float(asked or 0))
    except (ValueError, OverflowError):
        raise EngineError(f"{asked!r} is not a number", 72) from None
    return number if 0 < number <= most else most
