"""ClickHouse's HTTP protocol, a stated subset of it, over the chDB engine of this process.

chDB locks its folder, so while a pipeline runs no other process can open its archive. Queries come here instead:
from ``sdfstream sql`` at a Unix socket that only the data folder's owner and root may use, from curl, any ClickHouse
HTTP client or Grafana's plug-in over TCP with the data folder's token. Read-only unless the token to write is given.

What is served: ``GET`` and ``POST /`` (see `query`), ``GET /ping``; formats, parameters and settings of the engine as
far as `allowlist` has them; gzip and zstd both ways; errors with HTTP status and ``X-ClickHouse-Exception-Code``.
Results are complete before the first byte is sent, so an error never hides in a 200. Not served: web pages, sessions,
external data, progress, ``/play``. It is the ClickHouse HTTP protocol subset, engine as in ``SELECT version()``; it is
not a server.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from sdfstream.archive.http.access import LOOPBACK_NAMES, Tokens
from sdfstream.archive.http.connections_io import Connections
from sdfstream.archive.http.endpoint_io import SOCKET
from sdfstream.archive.http.front_io import Front, FrontLimits
from sdfstream.archive.http.handler_io import SqlHandler, UnixSqlHandler
from sdfstream.archive.http.short_path_io import short_path
from sdfstream.archive.http.token_io import FILE as TOKEN_FILE
from sdfstream.archive.http.token_io import ensure_token
from sdfstream.errors import UnavailableError
from sdfstream.stats import Counters

_OWNER_CONNECTIONS: Final = 16


class Refusals:
    """What was refused, counted by reason from many threads."""

    def __init__(self) -> None:
        self.counters = Counters("sql")
        self._lock = threading.Lock()

    def add(self, reason: str) -> None:
        """Count one."""
        with self._lock:
            self.counters.add("refused", reason)


class SqlFront:
    """The HTTP servers in threads of their own; `start`, `port`, `close`."""

    def __init__(self, front: Front, servers: list[_Server], tokens: Tokens, refusals: Refusals) -> None:
        self.counters = refusals.counters
        self.read_token = tokens.reader
        """The password to read."""
        self._front = front
        self._servers = servers
        self._threads = [
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, name="sql-front", daemon=True)
            for server in servers
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def start(
        cls,
        path: str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        database: str = "sdf",
        data: Path | None = None,
        read_token: str | None = None,
        token: str | None = None,
        limits: FrontLimits | None = None,
        connections: int = 64,
    ) -> SqlFront:
        """Serve the archive in the folder `path`, which this process has open, on `host`:`port` (0: any free port).

        Parameters
        ----------
        data : Path, optional
            The data folder: its token is the password to read, and its owner is served at its socket.
        read_token : str, optional
            Without `data`: the password to read; None: one is made up.
        token : str, optional
            Password that allows writing, by POST; None: nobody writes.

        Raises
        ------
        UnavailableError
            The address cannot be used, or the engine has another folder open.
        ConfigError
            The data folder's token cannot be used.
        """
        limits = limits or FrontLimits()
        tokens = _tokens(data, read_token, token)
        refusals = Refusals()
        front = Front(path, database, limits)
        servers: list[_Server] = []
        try:
            servers.append(_TcpServer((host, port), front, limits, refusals, connections, tokens))
            if data is not None:
                servers.append(_UnixServer(data / SOCKET, front, limits, refusals))
        except OSError as error:
            for server in servers:
                server.server_close()
            front.close()
            raise UnavailableError(f"SQL cannot be served on {host}:{port}: {error}") from error
        return cls(front, servers, tokens, refusals)

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._servers[0].server_address[1])

    def close(self) -> None:
        """Take no more questions, let running ones end for a little while, let go of the engine."""
        for server in self._servers:
            server.shutdown()
            server.server_close()
        self._front.close()
        for server in self._servers:
            server.connections.close()
        for thread in self._threads:
            thread.join()


def _tokens(data: Path | None, read_token: str | None, token: str | None) -> Tokens:
    if data is None:
        return Tokens(read_token or secrets.token_urlsafe(32), token)
    where = data.absolute() / TOKEN_FILE
    return Tokens(
        ensure_token(data),
        token,
        f": give the token in {where}, which only its owner can read, as password or in X-ClickHouse-Key",
    )


class _Server(ThreadingHTTPServer):
    """What both servers do alike; see `handler_io.Served`."""

    handler: type[SqlHandler] = SqlHandler
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(
        self,
        address: Any,
        front: Front,
        limits: FrontLimits,
        refusals: Refusals,
        connections: int,
        tokens: Tokens | None,
    ) -> None:
        self.front = front
        self.limits = limits
        self.refusals = refusals
        self.tokens = tokens
        self.names: frozenset[str] | None = None
        self.connections = Connections(connections)
        super().__init__(address, self.handler)

    def service_actions(self) -> None:
        """Ten times a second: hang up whoever takes too long."""
        self.connections.sweep()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread; where all are busy close it at once."""
        if self.connections.admit(request):
            super().process_request(request, client_address)
        else:
            self.refusals.add("connections")
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Run the connection, then make room for another."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.remove(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours; the connection is closed and that is all."""


class _TcpServer(_Server):
    def __init__(
        self,
        address: tuple[str, int],
        front: Front,
        limits: FrontLimits,
        refusals: Refusals,
        connections: int,
        tokens: Tokens,
    ) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, front, limits, refusals, connections, tokens)
        self.names = LOOPBACK_NAMES if address[0] in LOOPBACK_NAMES else None


class _UnixServer(_Server):
    handler = UnixSqlHandler
    address_family = socket.AF_UNIX

    def __init__(self, path: Path, front: Front, limits: FrontLimits, refusals: Refusals) -> None:
        self._path = path
        super().__init__(path, front, limits, refusals, _OWNER_CONNECTIONS, None)

    def server_bind(self) -> None:
        """Make the socket, for its owner alone from the first moment."""
        self._path.unlink(missing_ok=True)  # left by a pipeline that was killed
        before = os.umask(0o177)
        try:
            with short_path(self._path) as name:
                self.socket.bind(name)
        finally:
            os.umask(before)
        self.server_name, self.server_port = "localhost", 0

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whether the peer is the owner or root."""
        if not hasattr(socket, "SO_PEERCRED"):
            return True  # the socket's own mode has to do
        _, user, _ = struct.unpack("3i", request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        return user in (os.geteuid(), 0)

    def server_close(self) -> None:
        """Close the socket and remove its file."""
        super().server_close()
        with contextlib.suppress(OSError):
            self._path.unlink()
