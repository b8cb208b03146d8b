"""A process's status over HTTP: ``/metrics`` for Prometheus, ``/health`` for the process's supervisor.

Served from a thread of its own, which goes on answering when the event loop hangs. Everybody who can reach the address
can read it; nothing can be changed through it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, cast
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from sdfstream.errors import ConfigError, SdfError, UnavailableError
from sdfstream.runtime.metrics import ProcessStatus, StatusCollector

_MAX_REQUESTS: Final = 16
_IDLE_S: Final = 10
_TEXT: Final = "text/plain; charset=utf-8"
_POLL_S: Final = 5.0
"""Interval of polls of the bus, and the longest wait for an answer."""


@contextlib.asynccontextmanager
async def serving(
    address: str | None, status: ProcessStatus, ask_bus: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[None]:
    """Serve `status` at `address` while the block runs; without an address do nothing.

    `ask_bus` returns when the bus has answered, and raises `SdfError` when it has not; None: the bus is not polled.
    """
    if address is None:
        yield
        return
    polling = None
    if ask_bus is not None:
        status.bus_answered_at_s = time.monotonic()
        polling = asyncio.create_task(_poll_bus(ask_bus, status), name="ask the bus")
    server = MetricsServer.start(address, status)
    try:
        yield
    finally:
        if polling is not None:
            polling.cancel()
        await asyncio.to_thread(server.close)


async def _poll_bus(ask_bus: Callable[[], Awaitable[None]], status: ProcessStatus) -> None:
    while True:
        with contextlib.suppress(SdfError, TimeoutError):
            await asyncio.wait_for(ask_bus(), _POLL_S)
            status.bus_answered_at_s = time.monotonic()
        await asyncio.sleep(_POLL_S)


class MetricsServer:
    """Serves a `ProcessStatus` until `close`."""

    def __init__(self, server: _MetricsHttpServer) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True
        )
        self._thread.start()

    @classmethod
    def start(cls, address: str, status: ProcessStatus) -> MetricsServer:
        """Serve at ``HOST:PORT`` (port 0: any free one).

        Raises
        ------
        ConfigError
            `address` is no ``HOST:PORT``.
        UnavailableError
            The address cannot be used.
        """
        host, port = parse_address(address)
        try:
            return cls(_MetricsHttpServer((host, port), status))
        except OSError as error:
            raise UnavailableError(f"metrics cannot be served on {address}: {error}") from error

    @property
    def port(self) -> int:
        """The TCP port in use, also where `start` was given port 0."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``; raises ConfigError.

    >>> parse_address("[::1]:9464")
    ('::1', 9464)
    """
    try:
        counted = urlsplit(f"//{text}")
        host, port = counted.hostname, counted.port
    except ValueError:
        host = port = None
    if not host or port is None:
        raise ConfigError(f"--metrics is '{text}'; it must be HOST:PORT, as in 127.0.0.1:9464")
    return host, port


class _MetricsHttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], status: ProcessStatus) -> None:
        self.status = status
        self.registry = CollectorRegistry()
        self.registry.register(StatusCollector(status, time.monotonic, time.time_ns))
        ProcessCollector(registry=self.registry)  # resident memory, CPU time, open files, start time
        PlatformCollector(registry=self.registry)
        self._free_threads = threading.BoundedSemaphore(_MAX_REQUESTS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _MetricsHandler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give the connection a thread; beyond the limit close it at once."""
        if self._free_threads.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, then free the thread's place."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free_threads.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class _MetricsHandler(BaseHTTPRequestHandler):
    server_version = "sdfstream"
    sys_version = ""
    timeout = _IDLE_S

    def do_GET(self) -> None:
        """One of the two pages."""
        server = cast(_MetricsHttpServer, self.server)
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send(HTTPStatus.OK, generate_latest(server.registry), CONTENT_TYPE_LATEST)
        elif path in ("/health", "/healthz"):
            found = server.status.problems(time.monotonic())
            status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
            text = "; ".join([*(found or ["well"]), *server.status.warnings()])
            self._send(status, text.encode() + b"\n", _TEXT)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"There is /metrics and /health here.\n", _TEXT)

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        """The Server header."""
        return self.server_version

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: this is no access log."""
