"""Queries from many threads to the chDB engine of this process: a fresh handle for each, every resource bounded.

A handle costs a millisecond; it starts without the settings, database and limits of the question before, and
nothing can lift its read-only mode.
"""

from __future__ import annotations

import hmac
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sdfstream.archive.failures import (
    ABORTED,
    AUTHENTICATION_FAILED,
    TOO_MANY_SIMULTANEOUS_QUERIES,
    UNKNOWN_DATABASE,
    EngineError,
    engine_error,
)
from sdfstream.archive.http import guard
from sdfstream.archive.http.query import SqlRequest, split_insert
from sdfstream.archive.http.reply import empty_native
from sdfstream.archive.memfile_io import Scratch
from sdfstream.archive.sqltext import literal, parameter, quoted
from sdfstream.errors import UnavailableError

_DEFAULT_FORMAT: Final = "TabSeparated"


@dataclass(frozen=True, slots=True)
class FrontLimits:
    """Bounds of the front; a query may ask for less, never for more."""

    queries: int = 4
    """Running at the same time; a further one waits `wait_s` for its turn, then is refused."""
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


class Front:
    """The engine behind the HTTP front.

    Parameters
    ----------
    path : str
        The folder that the archive's writer of this process has open.
    database : str
        Database of a query that names none.
    token : str | None
        Password that allows writing, by POST; None: no password does.
    open_to_read : bool
        Whether reading needs no password.
    """

    def __init__(self, path: str, database: str, token: str | None, open_to_read: bool, limits: FrontLimits) -> None:
        import chdb

        self._connect = chdb.connect
        self._path = os.path.realpath(path)  # the engine compares paths as text; clickhouse-connect resolves them
        self._database = database
        self._token = token
        self._open_to_read = open_to_read
        self._limits = limits
        self._closed = False
        self._turns = threading.BoundedSemaphore(limits.queries)
        try:
            self._base = self._connect(self._path)
        except RuntimeError as error:
            raise UnavailableError(f"the archive in {path} cannot be opened for questions: {error}") from error

    def answer(self, request: SqlRequest) -> Reply:
        """Run one question.

        Raises
        ------
        EngineError
            The engine's refusal or ours, with ClickHouse's code.
        """
        writable = self._may_write(request.password) and request.method == "POST"
        if not self._turns.acquire(timeout=self._limits.wait_s):
            raise EngineError(f"{self._limits.queries} queries already run", TOO_MANY_SIMULTANEOUS_QUERIES)
        try:
            if self._closed:
                raise EngineError("the archive is closing", ABORTED)
            with self._handle() as handle:
                return self._run(handle, request, writable)
        finally:
            self._turns.release()

    def close(self, wait_s: float = 5.0) -> None:
        """Wait a little for running questions, then let go of the engine."""
        self._closed = True
        ended = [self._turns.acquire(timeout=wait_s) for _ in range(self._limits.queries)]
        for _ in filter(None, ended):
            self._turns.release()
        self._base.close()

    def _may_write(self, password: str) -> bool:
        if not password and self._open_to_read:
            return False
        if self._token is not None and hmac.compare_digest(password.encode(), self._token.encode()):
            return True
        hint = "; without one you may read" if self._open_to_read else ""
        raise EngineError(f"the password is wrong{hint}", AUTHENTICATION_FAILED)

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        handle = self._connect(self._path)
        try:
            yield handle
        finally:
            handle.close()

    def _run(self, handle: Any, request: SqlRequest, writable: bool) -> Reply:
        statement = guard.check(request.sql, _tokens(handle, request.sql), writable=writable)
        self._use(handle, request.database)
        for name, value in self._settings(request, writable).items():
            _query(handle, f"SET {name} = {literal(value)}")
        insert = split_insert(request.sql) if request.data is not None else None
        if insert is not None and request.data is not None:
            result = _insert(handle, insert.head, insert.settings, insert.format, request.data)
            return Reply(b"", None, _summary(result, written=True))
        fmt = statement.format or request.default_format or _DEFAULT_FORMAT
        result = _query(handle, statement.sql, fmt, dict(request.parameters))
        body = bytes(result.bytes() or b"")
        if not body and statement.verb not in guard.READS:
            return Reply(b"", None, _summary(result))
        if not body and fmt == "Native" and statement.verb in ("SELECT", "WITH", "FROM"):
            body = _native_header(handle, statement.query, dict(request.parameters))
        return Reply(body, fmt, _summary(result))

    def _use(self, handle: Any, database: str | None) -> None:
        try:
            _query(handle, f"USE {quoted(database or self._database)}")
        except EngineError as error:
            if database is not None or error.code != UNKNOWN_DATABASE:
                raise  # before the first migration the default database does not exist; a query that names none may run

    def _settings(self, request: SqlRequest, writable: bool) -> dict[str, str]:
        """The question's settings within the limits; read-only last, since nothing can be set after it."""
        asked = {k: v for k, v in request.settings.items() if k != "readonly"}
        if writable:
            return asked
        caps = {
            "max_execution_time": self._limits.seconds,
            "max_result_bytes": self._limits.result_bytes,
            "max_memory_usage": self._limits.memory_bytes,
        }
        capped = {k: str(_within(asked.get(k), most)) for k, most in caps.items()}
        return asked | capped | {"result_overflow_mode": "throw", "timeout_overflow_mode": "throw", "readonly": "1"}


def _within(asked: str | None, most: int) -> int:
    """The asked number if it is one from 1 to `most`; else `most` (0 means unlimited in ClickHouse)."""
    try:
        number = int(float(asked or 0))
    except (ValueError, OverflowError):
        raise EngineError(f"{asked!r} is not a number", 72) from None
    return number if 0 < number <= most else most


def _tokens(handle: Any, sql: bytes) -> list[list[Any]]:
    try:
        text = sql.decode()
    except UnicodeDecodeError as error:
        raise EngineError(f"the query is not UTF-8: {error.reason} at byte {error.start}", guard.SYNTAX_ERROR) from None
    question = "SELECT arrayMap(t -> (t.1, t.2, toString(t.3)), tokenizeQuery({q:String}))"
    printed = _query(
        handle,
        f"{question} SETTINGS output_format_json_named_tuples_as_objects = 0",
        "JSONCompact",
        {"q": parameter(text)},
    )
    tokens: list[list[Any]] = json.loads(printed.bytes())["data"][0][0]
    return tokens


def _native_header(handle: Any, query: bytes, parameters: dict[str, str]) -> bytes:
    """The columns of a query without rows as a Native block of none: a server sends it, chDB sends nothing."""
    printed = _query(handle, b"DESCRIBE (" + query + b"\n)", "JSONCompact", parameters)
    return empty_native([(row[0], row[1]) for row in json.loads(printed.bytes())["data"]])


def _query(handle: Any, sql: str | bytes, fmt: str = _DEFAULT_FORMAT, parameters: dict[str, str] | None = None) -> Any:
    try:
        return handle.query(sql, fmt, params=parameters or {})
    except RuntimeError as error:
        raise engine_error(str(error)) from error


def _insert(handle: Any, head: str, settings: str, fmt: str, data: bytes) -> Any:
    scratch = Scratch()
    try:
        with scratch.holding(lambda file: file.write(data)) as path:
            return _query(handle, f"{head} FROM INFILE {literal(path)} {settings}FORMAT {fmt}")
    finally:
        scratch.close()


def _summary(result: Any, *, written: bool = False) -> str:
    rows, size = str(result.rows_read()), str(result.bytes_read())
    counts = {"read_rows": rows, "read_bytes": size, "written_rows": "0", "written_bytes": "0"}
    if written:
        counts |= {"written_rows": rows, "written_bytes": size}
    return json.dumps(counts | {"elapsed_ns": str(int(result.elapsed() * 1e9))})
