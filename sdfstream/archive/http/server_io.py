"""ClickHouse's HTTP protocol, a stated subset of it, over the chDB engine of this process.

chDB locks its folder, so while a pipeline runs no other process can open its archive. Queries come here instead, from
curl, any ClickHouse HTTP client, Grafana's plug-in or ``sdfstream sql``. Read-only unless a token is set and given.

What is served: ``GET`` and ``POST /`` (see `query`), ``GET /ping``; formats, parameters and settings of the
engine; gzip and zstd both ways; errors with HTTP status and ``X-ClickHouse-Exception-Code``. Results are complete
before the first byte is sent, so an error never hides in a 200. Not served: sessions, external data, progress,
``/play``. It is the ClickHouse HTTP protocol subset, engine as in ``SELECT version()``; it is not a server.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

import pyarrow as pa

from sdfstream.archive.failures import EngineError
from sdfstream.archive.http.body import TooLargeError, encode, read_body
from sdfstream.archive.http.front_io import Front, FrontLimits, Reply
from sdfstream.archive.http.query import parse_request
from sdfstream.archive.http.reply import content_type, http_status
from sdfstream.errors import UnavailableError

_IDLE_S: Final = 60
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class SqlFront:
    """The HTTP server in threads of its own; `start`, `port`, `close`."""

    def __init__(self, server: _SqlServer) -> None:
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="sql-front")
        self._thread.daemon = True
        self._thread.start()

    @classmethod
    def start(
        cls,
        path: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        database: str = "sdf",
        token: str | None = None,
        limits: FrontLimits | None = None,
        connections: int = 64,
    ) -> SqlFront:
        """Serve the archive in the folder `path`, which this process has open, on `host`:`port` (0: any free port).

        On loopback reading is free, and `token` as password allows writing. On any other address nothing
        goes without the token.

        Raises
        ------
        UnavailableError
            The address cannot be used, or the engine has another folder open.
        """
        limits = limits or FrontLimits()
        loopback = host in _LOOPBACK
        front = Front(path, database, token, loopback, limits)
        try:
            server = _SqlServer((host, port), front, limits, connections)
        except OSError as error:
            front.close()
            raise UnavailableError(f"SQL cannot be served on {host}:{port}: {error}") from error
        return cls(server)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Take no more questions, let running ones end for a little while, let go of the engine."""
        self._server.shutdown()
        self._server.server_close()
        self._server.front.close()
        self._server.hang_up()
        self._thread.join()


class _SqlServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], front: Front, limits: FrontLimits, connections: int) -> None:
        self.front = front
        self.limits = limits
        self.names = _LOOPBACK if address[0] in _LOOPBACK else None
        self._open: set[socket.socket] = set()
        self._room = threading.BoundedSemaphore(connections)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _SqlHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread; beyond the limit close it at once."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Run the connection, then make room for another."""
        self._open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._room.release()

    def hang_up(self) -> None:
        """End every connection that is still open."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; the connection is closed and that is all."""


class _SqlHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "sdfstream"
    sys_version = ""
    timeout = _IDLE_S
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave together: in two packets the second waits 40 ms for an acknowledgement

    def do_GET(self) -> None:
        """A question in the URL, or a sign of life."""
        path = urlsplit(self.path)
        if path.path == "/ping" or (path.path == "/" and not path.query):
            self._send(HTTPStatus.OK, b"Ok.\n", {"Content-Type": "text/plain; charset=UTF-8"})
        elif path.path == "/":
            self._question(b"")
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is / and /ping here.\n", {"Content-Type": "text/plain"})

    def do_POST(self) -> None:
        """A question in the body, or an insert."""
        try:
            body = read_body(self.rfile, self._lower_case_headers, self._sql_server.limits.body_bytes)
        except TooLargeError:
            self.close_connection = True
            self._refuse(
                EngineError(f"the request is larger than {self._sql_server.limits.body_bytes} bytes", 307), 413
            )
        except (ValueError, OSError, pa.ArrowException, zlib.error) as error:
            self.close_connection = True
            self._refuse(EngineError(f"the request's body cannot be read: {error}", 62), 400)
        else:
            self._question(body)

    @property
    def _lower_case_headers(self) -> dict[str, str]:
        return {name.lower(): value for name, value in self.headers.items()}

    @property
    def _sql_server(self) -> _SqlServer:
        return cast(_SqlServer, self.server)

    def _question(self, body: bytes) -> None:
        if not self._known_name():
            self._refuse(EngineError("this address is not known by the name in the Host header", 516), 403)
            return
        try:
            request = parse_request(self.path, self._lower_case_headers, body, self.command)
            reply = self._sql_server.front.answer(request)
        except EngineError as error:
            self._refuse(error, http_status(error.code))
        else:
            self._answer(reply)

    def _known_name(self) -> bool:
        """Whether we are asked by a name of ours: a web page must not reach loopback by its own (DNS rebinding)."""
        try:
            name = urlsplit("//" + self.headers.get("Host", "")).hostname
        except ValueError:
            return False
        return self._sql_server.names is None or name in self._sql_server.names

    def _answer(self, reply: Reply) -> None:
        headers = {"X-ClickHouse-Summary": reply.summary}
        if reply.format is not None:
            headers |= {"Content-Type": content_type(reply.format), "X-ClickHouse-Format": reply.format}
        body, coding = encode(reply.body, self.headers.get("Accept-Encoding", ""))
        if coding is not None:
            headers["Content-Encoding"] = coding
        self._send(HTTPStatus.OK, body, headers)

    def _refuse(self, error: EngineError, status: int) -> None:
        code = error.code or 1000
        text = f"Code: {code}. DB::Exception: {error}\n".encode()
        headers = {"Content-Type": "text/plain; charset=UTF-8", "X-ClickHouse-Exception-Code": str(code)}
        self._send(HTTPStatus(status), text, headers)

    def _send(self, status: HTTPStatus, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("X-ClickHouse-Timezone", "UTC")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def version_string(self) -> str:
        """The Server header."""
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a terminal that shows the pipeline is no access log."""
