"""The API's server: uvicorn in the loop that feeds the boards, on a socket of our own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from sdfstream.errors import ConfigError, UnavailableError
from sdfstream.runtime.metrics_io import parse_address
from sdfstream.serve.api.peer import is_loopback

FILE: Final = "api.url"
"""Of the data folder: where the API of the pipeline that runs on it is."""
PORT: Final = 9465
USUAL: Final = f"127.0.0.1:{PORT}"
OFF: Final = "off"
_CLOSE_S: Final = 2
_HEAD_BYTES: Final = 16 << 10


class _LoopServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's, not the server's."""
        yield


class ApiServer:
    """Serves an application until `close`."""

    def __init__(self, server: _LoopServer, listening: socket.socket, data: Path) -> None:
        self._server = server
        self._listening = listening
        self._data = data
        self._written = ""
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, app: ASGIApp, address: str, data: Path) -> ApiServer:
        """Listen at ``HOST:PORT`` (port 0: any free one), and say in the data folder where.

        Raises
        ------
        ConfigError
            `address` is no ``HOST:PORT``.
        UnavailableError
            The address cannot be used.
        """
        listening = _bound(address)
        config = uvicorn.Config(
            app,
            loop="none",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            h11_max_incomplete_event_size=_HEAD_BYTES,
            limit_concurrency=256,
            backlog=128,
            timeout_keep_alive=15,
            timeout_graceful_shutdown=_CLOSE_S,
        )
        server = cls(_LoopServer(config), listening, data)
        server._task = asyncio.create_task(server._server.serve(sockets=[listening]), name="api")
        await server._server.listens.wait()
        server._write_url()
        return server

    @property
    def url(self) -> str:
        """Where it answers."""
        host, port = self._listening.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def close(self) -> None:
        """Stop listening; what is being answered has a moment."""
        self._server.should_exit = True
        if self._task is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._listening.close()
        with contextlib.suppress(OSError):
            if (self._data / FILE).read_text(encoding="ascii").strip() == self._written:
                (self._data / FILE).unlink()

    def _write_url(self) -> None:
        self._written = self.url
        self._data.mkdir(parents=True, exist_ok=True)
        (self._data / FILE).write_text(self._written + "\n", encoding="ascii")


def _bound(address: str) -> socket.socket:
    """A listening socket; where the usual port is taken on loopback, any other."""
    try:
        host, port = parse_address(address)
    except ConfigError as error:
        raise ConfigError(f"--api is '{address}'; it must be HOST:PORT, as in {USUAL}, or {OFF}") from error
    family: Any = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (port, 0) if address == USUAL else (port,):
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, wanted))
            listening.setblocking(False)
            return listening
        except OSError as error:
            listening.close()
            problem = error
    raise UnavailableError(f"the API cannot be served on {address}: {problem}") from problem


def is_for_others(address: str) -> bool:
    """Whether an address can be reached from other machines: then every caller needs a token."""
    return address != OFF and not is_loopback({"localhost": "127.0.0.1"}.get(h := parse_address(address)[0], h))
