"""One request of ClickHouse's HTTP protocol as a value. Pure.

Understood: GET and POST; the statement in ``query``, in the body, or split over both; ``database``,
``default_format`` and ``X-ClickHouse-Format``; ``param_NAME``; every other parameter is a setting, and has to be among
the allowed (`allowlist`). Password as Basic or Bearer authorisation, ``X-ClickHouse-Key`` or ``password``. Not
understood: sessions and query ids (accepted and without effect), external data, ClickHouse's own compressed body
(``decompress``), progress headers.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl

from sdfstream.archive.failures import UNKNOWN_SETTING, EngineError

NOT_IMPLEMENTED: Final = 48

_OWN: Final = frozenset({"query", "database", "default_format", "password"})
"""Parameters of the protocol that the front deals with itself."""

_SETTING: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSERT: Final = re.compile(
    rb"^\s*(INSERT\s+INTO\s+[^;]*?)\s+(SETTINGS\s+[^;]*?\s+)?FORMAT\s+([A-Za-z]\w*)[ \t]*(?:\r?\n|$)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SqlRequest:
    """A statement for the engine, with its parameters."""

    sql: bytes
    data: bytes | None = None
    """The rows of an INSERT … FORMAT."""
    database: str | None = None
    default_format: str | None = None
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Query parameters by their bare names, values escaped as in TSV."""
    settings: Mapping[str, str] = field(default_factory=dict)
    password: str = ""
    method: str = "POST"
    """A GET never changes anything."""


@dataclass(frozen=True, slots=True)
class Insert:
    """An INSERT statement taken apart, so that its rows can come from elsewhere."""

    head: str
    settings: str
    format: str


def parse_request(target: str, headers: Mapping[str, str], body: bytes, method: str = "POST") -> SqlRequest:
    """The question in a request to `target` (path and query string) with lower-case `headers`.

    Raises
    ------
    EngineError
        48 a part of the protocol that this front does not have, 115 a setting's name is none.
    """
    given = _parameters(target)
    if headers.get("content-type", "").startswith("multipart/") or given.get("decompress") in ("1", "true"):
        raise EngineError("external data, form encoding and compressed blocks are not served here", NOT_IMPLEMENTED)
    sql, data = _statement(given.get("query", "").encode(), body)
    settings = {k: v for k, v in given.items() if k not in _OWN and not k.startswith("param_") and k != "decompress"}
    for name in settings:
        if not _SETTING.fullmatch(name):
            raise EngineError(f"{name[:60]!r} is not a setting's name", UNKNOWN_SETTING)
    return SqlRequest(
        sql=sql,
        data=data,
        database=given.get("database") or headers.get("x-clickhouse-database"),
        default_format=given.get("default_format") or headers.get("x-clickhouse-format"),
        parameters={k[6:]: v for k, v in given.items() if k.startswith("param_")},
        settings=settings,
        password=password_in(target, headers),
        method=method,
    )


def split_target(target: str) -> tuple[str, str]:
    """Path and query of a request's target (RFC 9112, section 3.2.1); a whole URL's parser raises at ``//[``."""
    path, _, query = target.partition("#")[0].partition("?")
    return path, query


def _parameters(target: str) -> dict[str, str]:
    return dict(parse_qsl(split_target(target)[1], keep_blank_values=True))


def split_insert(sql: bytes) -> Insert | None:
    """The parts of ``INSERT INTO … [SETTINGS …] FORMAT name``; None for any other statement."""
    found = _INSERT.match(sql)
    if found is None or found.end() != len(sql):
        return None
    head, settings, fmt = found.groups()
    return Insert(head.decode(), (settings or b"").decode(), fmt.decode())


def _statement(query: bytes, body: bytes) -> tuple[bytes, bytes | None]:
    if not body:
        return query, None
    if query:
        return (query, body) if split_insert(query) else (query + b"\n" + body, None)
    found = _INSERT.match(body[: 1 << 16])
    if found is not None:
        return body[: found.end()], body[found.end() :]
    return body, None


def password_in(target: str, headers: Mapping[str, str]) -> str:
    """The password that a request to `target` with lower-case `headers` gives; empty when it gives none."""
    given = _parameters(target)
    kind, _, rest = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        return rest.strip()
    if kind.lower() == "basic":
        try:
            return base64.b64decode(rest, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError, ValueError):
            return "?"  # an unreadable password is a wrong one
    return headers.get("x-clickhouse-key") or given.get("password", "")
