"""Statements that a reader of the HTTP front may run. Pure; the engine's lexer (``tokenizeQuery``) supplies the tokens.

chDB runs with the rights of its process. The reader's role (``engine_config/users.xml``) and read-only mode
(``readonly = 1``) refuse every statement that writes and every table function that reaches outside; this guard closes
what they leave open: other statements (KILL, GRANT, …), files written by INTO OUTFILE, files read by the function
``file``, SQL in strings (``eval``), and functions that call out. It sees each statement twice: as it was sent, and as
the engine's own parser writes it (``formatQuery``), where no quoting hides a name. A test lists what chDB offers, so
that a new version is reviewed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from sdfstream.archive.failures import READONLY, EngineError

SYNTAX_ERROR: Final = 62
READS: Final = frozenset({"SELECT", "WITH", "FROM", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS"})

DENIED: Final = frozenset(
    [
        "file",
        "infile",
        "outfile",
        "eval",
        "python",
        "executable",
        "url",
        "urlcluster",
        "remote",
        "remotesecure",
        "cluster",
        "clusterallreplicas",
        "hascolumnintable",
        "filesystem",
        "arrowstream",
        "stack_trace",
        "jemalloc_profile_text",
    ]
)
"""Names that no reader may use, whatever they stand for in the statement."""
_DENIED_FORM: Final = re.compile(
    r"^(?:ai(?:classify|embed|extract|filter|generate|redact|similarity|translate).*|catboost.*|dictget.*|joinget.*)$"
)
"""Forms of such names: AI functions call out; dictionaries and join tables may be backed by anything."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", re.ASCII)
_BLANK: Final = ("Whitespace", "Comment")


class Token(NamedTuple):
    """One token: byte range in the statement and the lexer's name for its kind."""

    begin: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement that may run."""

    sql: bytes
    """Without a closing semicolon."""
    query: bytes
    """`sql` up to its FORMAT clause."""
    format: str | None
    """The format that this clause names; None without one."""
    verb: str
    """Its first word in capitals."""
    words: tuple[str, ...] = ()
    """Its names and keywords in order, without quotes."""


def check(sql: bytes, tokens: Iterable[Sequence[object]], *, writable: bool = False) -> Statement:
    """The statement in `sql` if it may run; with `writable` every single statement may.

    Raises
    ------
    EngineError
        With ClickHouse's code: 62 does not lex or is not one statement, 164 not allowed to a reader.
    """
    words = [Token(*t) for t in tokens if t[2] not in _BLANK]  # type: ignore[arg-type]
    while words and words[-1].kind in ("Semicolon", "EndOfStream"):
        words.pop()
    if not words:
        raise EngineError("the query is empty", SYNTAX_ERROR)
    for token in words:
        if token.kind.startswith("Error"):
            raise EngineError(f"the query cannot be read: {token.kind} at byte {token.begin}", SYNTAX_ERROR)
        if token.kind == "Semicolon":
            raise EngineError("one statement at a time, please", SYNTAX_ERROR)
    verb = _verb(sql, words)
    if not writable:
        _only_reads(sql, words, verb)
    sql = sql[: words[-1].end]
    at, fmt = _format(sql, words)
    return Statement(sql, sql[:at], fmt, verb, tuple(_names(sql, words)))


def check_parameters(statement: Statement, parameters: Mapping[str, str]) -> None:
    """Refuse a parameter that would put a name into the statement which a reader may not use.

    Raises
    ------
    EngineError
        164. A parameter of type Identifier stands for a name, of a function too; the engine's parser cannot show it.
    """
    if not any(word.lower() == "identifier" for word in statement.words):
        return
    for name, value in parameters.items():
        if _PLAIN_NAME.fullmatch(value) is None or any(map(is_denied, value.split("."))):
            raise EngineError(
                f"parameter {name[:40]!r} is refused: beside a parameter of type Identifier each value is a plain name "
                "of the archive; write other values into the statement",
                READONLY,
            )


def _verb(sql: bytes, words: Sequence[Token]) -> str:
    first = next((t for t in words if t.kind != "OpeningRoundBracket"), words[0])
    return sql[first.begin : first.end].decode(errors="replace").upper()


def _only_reads(sql: bytes, words: Sequence[Token], verb: str) -> None:
    if verb not in READS:
        raise EngineError(f"{verb[:40]} is refused: this address only reads", READONLY)
    for name in _names(sql, words):
        if "\\" in name:
            raise EngineError(f"{name[:40]} is refused: no escapes in quoted names here", READONLY)
        if is_denied(name):
            raise EngineError(f"{name[:40]} is refused: this address reads the archive and nothing else", READONLY)


def _names(sql: bytes, words: Sequence[Token]) -> Iterator[str]:
    """Names and keywords, without quotes."""
    for token in words:
        if token.kind == "BareWord":
            yield sql[token.begin : token.end].decode(errors="replace")
        elif token.kind == "QuotedIdentifier":
            yield sql[token.begin + 1 : token.end - 1].decode(errors="replace")


def is_denied(name: str) -> bool:
    """Whether a reader may not use this name."""
    low = name.lower()
    return low in DENIED or _DENIED_FORM.match(low) is not None


def _format(sql: bytes, words: Sequence[Token]) -> tuple[int, str | None]:
    """Where ``FORMAT name`` begins, at the end or before a closing SETTINGS clause and outside brackets; its name."""
    depth = 0
    for i, token in enumerate(words):
        depth += (token.kind == "OpeningRoundBracket") - (token.kind == "ClosingRoundBracket")
        if depth or token.kind != "BareWord" or sql[token.begin : token.end].upper() != b"FORMAT":
            continue
        after = words[i + 1 : i + 3]
        ends = len(after) == 1 or (len(after) == 2 and sql[after[1].begin : after[1].end].upper() == b"SETTINGS")
        if ends and after[0].kind == "BareWord":
            return token.begin, sql[after[0].begin : after[0].end].decode()
    return len(sql), None
