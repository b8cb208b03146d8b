"""The archive's small pure parts: targets, failures, migrations, statements, requests, replies."""

from __future__ import annotations

import base64
import contextlib
import doctest
import io
import re
import zlib

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdfstream.archive import failures, migration, query_io, sqltext, tables, target
from sdfstream.archive.failures import EngineError, engine_error
from sdfstream.archive.http import allowlist, guard
from sdfstream.archive.http import query as http_query
from sdfstream.archive.http import reply as http_reply
from sdfstream.archive.http.body import TooLargeError, encode, read_body
from sdfstream.archive.http.query import SqlRequest, parse_request, password_in, split_insert, split_target
from sdfstream.errors import ArchiveError, ConfigError


@pytest.mark.parametrize(
    "module", [failures, http_reply, migration, query_io, tables, target], ids=lambda m: m.__name__
)
def test_examples_in_docstrings(module) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


calm = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy


# -- targets ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a/b", target.Folder("a/b")),
        ("chdb:///a/b", target.Folder("/a/b")),
        ("http://h", target.Server("h", 8123)),
        ("https://u:p%40@h:1/d", target.Server("h", 1, "u", "p@", "d", True)),
        ("https://[::1]/", target.Server("::1", 8443, secure=True)),
    ],
)
def test_targets(text: str, wanted: object) -> None:
    assert target.parse(text) == wanted


@pytest.mark.parametrize("text", ["", "ftp://h", "http://", "http://u:pw@h:port/d", "http://h:99999"])
def test_bad_targets_are_sentences_without_the_password(text: str) -> None:
    with pytest.raises(ConfigError, match="archive target") as caught:
        target.parse(text)
    assert "pw" not in str(caught.value)


def test_a_server_is_shown_without_its_password() -> None:
    assert str(target.parse("http://u:secret@[::1]:1/d")) == "http://[::1]:1/d"


# -- failures ---------------------------------------------------------------------------------------------------


def test_what_may_pass() -> None:
    assert engine_error("Connection refused").may_pass
    assert engine_error("Code: 252. DB::Exception: Too many parts").may_pass
    assert not engine_error("Code: 60. DB::Exception: default: no table").may_pass
    text = "Code: 62. DB::Exception: Code: 62. DB::Exception: bad. (SYNTAX_ERROR) (version 26.9.2.1)"
    assert str(engine_error(text)) == "bad. (SYNTAX_ERROR)"


# -- migrations -------------------------------------------------------------------------------------------------

FILES = {"0002_b.sql": "SELECT 2;\n", "0001_a.sql": "-- one; two\nSELECT ';' AS a;\n\n-- end\nSELECT 1 ;  \n-- over\n"}


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    first, second = migration.read(FILES)
    assert [s.splitlines()[-1] for s in first.statements] == ["SELECT ';' AS a", "SELECT 1"]
    assert second.statements == ["SELECT 2"]


def test_only_what_is_missing_is_pending() -> None:
    all_ = migration.read(FILES)
    first, second = all_
    assert migration.pending(all_, {}) == all_
    assert migration.pending(all_, {1: (first.name, first.digest)}) == [second]


def test_a_changed_or_newer_archive_is_refused() -> None:
    all_ = migration.read(FILES)
    with pytest.raises(ArchiveError, match=r"0001_a\.sql was changed"):
        migration.pending(all_, {1: ("0001_a.sql", "other")})
    with pytest.raises(ArchiveError, match=r"0003_c\.sql, which this sdfstream does not know"):
        migration.pending(all_, {3: ("0003_c.sql", "")})


@pytest.mark.parametrize("files", [{"0001_a.sql": "", "0003_c.sql": ""}, {"1_a.sql": ""}, {"0001_A.sql": ""}])
def test_misnamed_or_missing_migrations_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(ArchiveError):
        migration.read(files)


# -- statements -------------------------------------------------------------------------------------------------


def _tokens(sql: bytes) -> list[list[object]]:
    """A lexer that knows words, quotes, brackets and semicolons; enough for these statements."""
    kinds = [
        ("Whitespace", rb"\s+"), ("Comment", rb"--[^\n]*"), ("BareWord", rb"[A-Za-z_]\w*"),
        ("StringLiteral", rb"'[^']*'"),
        ("QuotedIdentifier", rb"`[^`]*`|\"[^\"]*\""), ("OpeningRoundBracket", rb"\("), ("ClosingRoundBracket", rb"\)"),
        ("Semicolon", rb";"), ("ErrorSingleQuoteIsNotClosed", rb"'.*"), ("Other", rb"."),
    ]  # fmt: skip
    out, at = [], 0
    while at < len(sql):
        kind, found = next((k, m) for k, p in kinds if (m := re.compile(p, re.DOTALL).match(sql, at)))
        out.append([at, found.end(), kind])
        at = found.end()
    return out


def _check(sql: str, *, writable: bool = False) -> guard.Statement:
    return guard.check(sql.encode(), _tokens(sql.encode()), writable=writable)


@pytest.mark.parametrize(
    ("sql", "query", "fmt"),
    [
        ("SELECT 1 FORMAT JSON ;; ", "SELECT 1 ", "JSON"),
        ("SELECT 1 FORMAT TSV SETTINGS a = 1", "SELECT 1 ", "TSV"),
        ("SELECT format FROM x", "SELECT format FROM x", None),
        ("SELECT (SELECT 1 FORMAT Null)", "SELECT (SELECT 1 FORMAT Null)", None),
        ("SELECT 'FORMAT JSON' -- FORMAT CSV", "SELECT 'FORMAT JSON'", None),
        ("((SELECT 1))", "((SELECT 1))", None),
    ],
)
def test_the_format_clause(sql: str, query: str, fmt: str | None) -> None:
    found = _check(sql)
    assert (found.query.decode(), found.format) == (query, fmt)


@pytest.mark.parametrize(
    ("sql", "code"),
    [(" -- x", 62), ("SELECT 1; SELECT 2", 62), ("SELECT 'a", 62), ("DROP TABLE x", 164), ("SELECT file('x')", 164)],
)
def test_what_a_reader_is_refused(sql: str, code: int) -> None:
    with pytest.raises(EngineError) as caught:
        _check(sql)
    assert caught.value.code == code


def test_a_writer_may_run_any_single_statement() -> None:
    assert _check("DROP TABLE x", writable=True).verb == "DROP"
    with pytest.raises(EngineError, match="one statement"):
        _check("DROP TABLE x; DROP TABLE y", writable=True)


def test_parameters_that_would_be_names() -> None:
    plain, named = _check("SELECT {a:String}"), _check("SELECT arrayMap({f:Identifier}, [1])")
    guard.check_parameters(plain, {"a": "file"})
    guard.check_parameters(named, {"f": "sdf.v_findings"})
    for value in ("file", "FILE", "fi\\x6ce", "`file`", "a b", "", "x.file", "url\n"):
        with pytest.raises(EngineError, match="parameter 'f' is refused"):
            guard.check_parameters(named, {"f": value})


def test_plain_words_are_not_denied() -> None:
    assert not any(
        map(
            guard.is_denied, ["src", "air", "aid", "profile", "path", "files", "evidence", "curl", "air", "runbook_url"]
        )
    )
    assert all(map(guard.is_denied, ["FILE", "aiEmbed", "dictGetString", "URL", "OutFile"]))


# -- requests ---------------------------------------------------------------------------------------------------


def test_requests() -> None:
    request = parse_request("/?query=SELECT%20{a:UInt8}&param_a=1&max_threads=2&database=d&session_id=x", {}, b"")
    assert request == SqlRequest(
        b"SELECT {a:UInt8}", None, "d", None, {"a": "1"}, {"max_threads": "2", "session_id": "x"}
    )
    assert dict(allowlist.check_settings(request.settings)) == {"max_threads": "2"}
    assert parse_request("/", {"x-clickhouse-format": "CSV"}, b"SELECT 1") == SqlRequest(
        b"SELECT 1", default_format="CSV"
    )
    whole = b"INSERT INTO t (a) FORMAT CSV\n1;\n2\n"
    assert parse_request("/", {}, whole).data == b"1;\n2\n"
    split = parse_request("/?query=INSERT+INTO+t+SETTINGS+x%3D1+FORMAT+Native", {}, b"\0\1")
    assert (split.sql, split.data) == (b"INSERT INTO t SETTINGS x=1 FORMAT Native", b"\0\1")


def test_a_target_that_is_no_url_is_read_as_path_and_query() -> None:
    """`urlsplit` raises at it: found by the fuzzer."""
    assert parse_request("//query=[?query=SELECT%201#x?y", {}, b"").sql == b"SELECT 1"
    assert password_in("//[?password=a", {}) == "a"
    assert split_target("//[/ping") == ("//[/ping", "")


def test_passwords() -> None:
    basic = base64.b64encode(b"user:p:w").decode()
    assert parse_request("/", {"authorization": f"Basic {basic}"}, b"").password == "p:w"
    assert parse_request("/", {"authorization": "Bearer t"}, b"").password == "t"
    assert parse_request("/?password=q", {}, b"").password == "q"
    assert parse_request("/", {"authorization": "Basic %%%"}, b"").password


def test_inserts_are_taken_apart() -> None:
    found = split_insert(b"insert into `a`.`b` (x, y) settings a=1, b='2' format ArrowStream\n")
    assert found == http_query.Insert("insert into `a`.`b` (x, y)", "settings a=1, b='2' ", "ArrowStream")
    assert split_insert(b"INSERT INTO t VALUES (1)") is None
    assert split_insert(b"SELECT 1 FORMAT CSV") is None


@calm
@given(st.text(max_size=60), st.binary(max_size=60), st.text(max_size=30))
def test_any_request_is_parsed_or_refused(path: str, body: bytes, authorization: str) -> None:
    try:
        request = parse_request("/?" + path, {"authorization": authorization}, body)
    except EngineError as error:
        assert error.code in (48, 115)
    else:
        assert isinstance(request.sql, bytes)


# -- bodies -----------------------------------------------------------------------------------------------------


@calm
@given(st.binary(max_size=300), st.lists(st.integers(1, 50), max_size=10))
def test_chunks_are_joined(body: bytes, sizes: list[int]) -> None:
    wire, rest = b"", body
    for size in sizes:
        if chunk := rest[:size]:
            wire += b"%x;ext=1\r\n" % len(chunk) + chunk + b"\r\n"
        rest = rest[size:]
    if rest:
        wire += b"%X\r\n" % len(rest) + rest + b"\r\n"
    source = io.BytesIO(wire + b"0\r\nTrailer: x\r\n\r\nnext request")
    assert read_body(source, {"transfer-encoding": "chunked"}, 1000) == body
    assert source.read() == b"next request"


@calm
@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "zstd", "lz4", "br", "identity", "x"]))
def test_any_body_is_read_or_refused(raw: bytes, coding: str) -> None:
    for headers in ({"content-length": str(len(raw))}, {"transfer-encoding": "chunked"}):
        with contextlib.suppress(TooLargeError, ValueError, OSError, pa.ArrowException, zlib.error):
            assert len(read_body(io.BytesIO(raw), headers | {"content-encoding": coding}, 100)) <= 100


@pytest.mark.parametrize("accepted", ["gzip", "zstd, gzip", "br", ""])
def test_what_is_encoded_is_decoded_again(accepted: str) -> None:
    body = b"abc" * 1000
    packed, coding = encode(body, accepted)
    headers = {"content-length": str(len(packed)), "content-encoding": coding or "identity"}
    assert read_body(io.BytesIO(packed), headers, 3000) == body
    if coding:
        with pytest.raises(TooLargeError):
            read_body(io.BytesIO(packed), headers, 2999)


# -- replies and text -------------------------------------------------------------------------------------------


def test_an_empty_native_block() -> None:
    long = "x" * 300
    assert http_reply.empty_native([("a", "UInt8"), (long, "String")]) == (
        b"\x02\x00\x01a\x05UInt8" + b"\xac\x02" + long.encode() + b"\x06String"
    )


def test_quoting() -> None:
    assert sqltext.quoted("a`b\\") == "`a\\`b\\\\`"
    assert sqltext.literal("it's \\") == "'it\\'s \\\\'"
    assert sqltext.parameter("a\tb\n\\\0") == "a\\tb\\n\\\\\\0"
