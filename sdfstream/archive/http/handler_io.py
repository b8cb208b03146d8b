"""One connection of the SQL front: requests in, answers out. Whoever may not ask costs a head and a sentence."""

from __future__ import annotations

import contextlib
import math
import socket
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final, Protocol, cast

import pyarrow as pa

from sdfstream.archive.failures import AUTHENTICATION_FAILED, EngineError
from sdfstream.archive.http.access import Caller, Tokens, page_in_between
from sdfstream.archive.http.body import TooLargeError, encode, read_body
from sdfstream.archive.http.connections_io import BODY_S, IDLE_S, SEND_S, Connections
from sdfstream.archive.http.front_io import Front, FrontLimits, Reply
from sdfstream.archive.http.query import parse_request, password_in, split_target
from sdfstream.archive.http.reply import content_type, http_status

_DROPPED_BYTES: Final = 1 << 26
_STATEMENT_BYTES: Final = 1 << 20
"""Of a reader, who sends statements and no rows."""


class CountsRefusals(Protocol):
    """Counts what was refused."""

    def add(self, reason: str) -> None:
        """Count one."""


class Served(Protocol):
    """What a handler needs of its server."""

    front: Front
    limits: FrontLimits
    tokens: Tokens | None
    """None: the socket has let only the owner connect."""
    names: frozenset[str] | None
    """Names that the address may be asked by; None: any."""
    connections: Connections
    refusals: CountsRefusals


class SqlHandler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, one after the other."""

    protocol_version = "HTTP/1.1"
    server_version = "sdfstream"
    sys_version = ""
    timeout = IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together: in two packets the second waits 40 ms for an acknowledgement

    def do_GET(self) -> None:
        """A question in the URL, or a sign of life."""
        if self._is_page():
            return
        path, query = split_target(self.path)
        if path == "/ping" or (path == "/" and not query):
            self._send(HTTPStatus.OK, b"Ok.\n", {"Content-Type": "text/plain; charset=UTF-8"})
        elif path == "/":
            self._question(has_body=False)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is / and /ping here.\n", {"Content-Type": "text/plain"})

    def do_POST(self) -> None:
        """A question in the body, or an insert."""
        if not self._is_page():
            self._question(has_body=True)

    @property
    def _lower_case_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    @property
    def _served(self) -> Served:
        return cast(Served, self.server)

    @property
    def _link(self) -> socket.socket:
        return cast(socket.socket, self.request)

    def _is_page(self) -> bool:
        """Refuse what a web page sends, before anything else is looked at."""
        hosts = self.headers.get_all("Host") or []
        names = self._served.names if self._served.tokens else None
        why = page_in_between(hosts, self._lower_case_headers, names)
        if why is not None:
            self._refuse(EngineError(why, AUTHENTICATION_FAILED), 403, "web-page", hang_up=True)
        return why is not None

    def _question(self, *, has_body: bool) -> None:
        tokens = self._served.tokens
        try:
            caller = Caller.OWNER if tokens is None else tokens.caller(password_in(self.path, self._lower_case_headers))
        except EngineError as error:
            self._refuse(error, http_status(error.code), "password", hang_up=True)
            return
        connections = self._served.connections
        connections.work(self._link, BODY_S)
        try:
            body = self._body(caller) if has_body else b""
            if body is not None:
                connections.work(self._link, math.inf)  # the front bounds how long a query runs
                self._ask(body, caller)
        finally:
            connections.rest(self._link, known=True)

    def _body(self, caller: Caller) -> bytes | None:
        """The request's body; None: it cannot be read, and that has been said."""
        limit = self._served.limits.body_bytes
        if caller is not Caller.WRITER:
            limit = min(limit, _STATEMENT_BYTES)
        try:
            return read_body(self.rfile, self._lower_case_headers, limit)
        except TooLargeError:
            self._refuse(EngineError(f"the request is larger than {limit} bytes", 307), 413, "body", hang_up=True)
        except (ValueError, OSError, pa.ArrowException, zlib.error) as error:
            refusal = EngineError(f"the request's body cannot be read: {error}", 62)
            self._refuse(refusal, 400, "body", hang_up=True)
        return None

    def _ask(self, body: bytes, caller: Caller) -> None:
        try:
            request = parse_request(self.path, self._lower_case_headers, body, self.command)
            reply = self._served.front.answer(request, caller)
        except EngineError as error:
            self._refuse(error, http_status(error.code), f"code-{error.code}")
        else:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        headers = {"X-ClickHouse-Summary": reply.summary}
        if reply.format is not None:
            headers |= {"Content-Type": content_type(reply.format), "X-ClickHouse-Format": reply.format}
        body, coding = encode(reply.body, self.headers.get("Accept-Encoding", ""))
        if coding is not None:
            headers["Content-Encoding"] = coding
        self._served.connections.work(self._link, SEND_S)
        self._send(HTTPStatus.OK, body, headers)

    def _refuse(self, error: EngineError, status: int, reason: str, *, hang_up: bool = False) -> None:
        self._served.refusals.add(reason)
        code = error.code or 1000
        text = f"Code: {code}. DB::Exception: {error}\n".encode(errors="replace")
        headers = {"Content-Type": "text/plain; charset=UTF-8", "X-ClickHouse-Exception-Code": str(code)}
        if hang_up:
            headers["Connection"] = "close"
        self._send(HTTPStatus(status), text, headers)
        if hang_up:
            self.close_connection = True
            self._drop_rest()

    def _drop_rest(self) -> None:
        """Read what a refused request still sends, within bounds: closed over it, the refusal would not arrive."""
        self._served.connections.rest(self._link, known=False)
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
            dropped = 0
            while dropped < _DROPPED_BYTES and (some := self.rfile.read1()):
                dropped += len(some)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("X-ClickHouse-Timezone", "UTC")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def version_string(self) -> str:
        """The Server header."""
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a terminal that shows the pipeline is no access log."""


class UnixSqlHandler(SqlHandler):
    """The same at a Unix socket, which has no Nagle to disable."""

    disable_nagle_algorithm = False
