"""Calls to one handle of the engine: tokens of a statement, queries, inserts; foreign exceptions mapped once."""

from __future__ import annotations

import json
from typing import Any, Final

from sdfstream.archive.failures import EngineError, engine_error
from sdfstream.archive.http import guard
from sdfstream.archive.http.reply import empty_native
from sdfstream.archive.memfile_io import Scratch
from sdfstream.archive.sqltext import literal, parameter

DEFAULT_FORMAT: Final = "TabSeparated"

Tokens = list[list[Any]]
"""Of one statement: begin, end, the lexer's name for the kind."""

_LEXED: Final = "arrayMap(t -> (t.1, t.2, toString(t.3)), tokenizeQuery({}))"


def lexed(handle: Any, sql: bytes) -> Tokens:
    """The tokens of `sql`."""
    row = _row(handle, f"SELECT {_LEXED.format('{q:String}')}", _text(sql))
    return list(row[0])


def parsed(handle: Any, sql: bytes) -> tuple[bytes, Tokens]:
    """`sql` as the engine's parser writes it, and the tokens of that.

    Raises
    ------
    EngineError
        62: it does not parse.
    """
    try:
        row = _row(handle, f"SELECT formatQuerySingleLine({{q:String}}) AS f, {_LEXED.format('f')}", _text(sql))
    except EngineError as error:
        raise EngineError(str(error).partition(": In scope ")[0], error.code) from error  # its scope is our question
    return str(row[0]).encode(), list(row[1])


def query(handle: Any, sql: str | bytes, fmt: str = DEFAULT_FORMAT, parameters: dict[str, str] | None = None) -> Any:
    """Run a statement."""
    try:
        return handle.query(sql, fmt, params=parameters or {})
    except RuntimeError as error:
        raise engine_error(str(error)) from error


def insert(handle: Any, head: str, settings: str, fmt: str, data: bytes) -> Any:
    """Run an INSERT whose rows are `data`."""
    scratch = Scratch()
    try:
        with scratch.holding(lambda file: file.write(data)) as path:
            return query(handle, f"{head} FROM INFILE {literal(path)} {settings}FORMAT {fmt}")
    finally:
        scratch.close()


def native_header(handle: Any, sql: bytes, parameters: dict[str, str]) -> bytes:
    """The columns of a query without rows as a Native block of none: a server sends it, chDB sends nothing."""
    printed = query(handle, b"DESCRIBE (" + sql + b"\n)", "JSONCompact", parameters)
    return empty_native([(row[0], row[1]) for row in json.loads(printed.bytes())["data"]])


def summary(result: Any, *, written: bool = False) -> str:
    """ClickHouse's X-ClickHouse-Summary."""
    rows, size = str(result.rows_read()), str(result.bytes_read())
    counts = {"read_rows": rows, "read_bytes": size, "written_rows": "0", "written_bytes": "0"}
    if written:
        counts |= {"written_rows": rows, "written_bytes": size}
    return json.dumps(counts | {"elapsed_ns": str(int(result.elapsed() * 1e9))})


def _text(sql: bytes) -> str:
    try:
        return sql.decode()
    except UnicodeDecodeError as error:
        raise EngineError(f"the query is not UTF-8: {error.reason} at byte {error.start}", guard.SYNTAX_ERROR) from None


def _row(handle: Any, question: str, text: str) -> list[Any]:
    settings = "SETTINGS output_format_json_named_tuples_as_objects = 0"
    printed = query(handle, f"{question} {settings}", "JSONCompact", {"q": parameter(text)})
    row: list[Any] = json.loads(printed.bytes())["data"][0]
    return row
