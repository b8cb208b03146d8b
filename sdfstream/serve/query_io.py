"""Queries of the verbs (`top`, `status`, `findings`, …) to the running pipeline, over a Unix socket in its data folder.

One JSON object per line each way. The socket belongs to its owner alone, and the peer's user is checked as well.
A Unix socket's path may be at most 107 bytes: where the data folder lies too deep the socket stands in a private
temporary folder and ``run.sock.path`` in the data folder says where.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError, NothingRunsError, UnavailableError
from sdfstream.runtime.output_io import compact
from sdfstream.stats import Counters

log = logging.getLogger("sdfstream.queries")

SOCKET_NAME: Final = "run.sock"
POINTER_NAME: Final = "run.sock.path"
_MOST_PATH_BYTES: Final = 107
_MOST_REQUEST_BYTES: Final = 4096
_MOST_ANSWER_BYTES: Final = 256 << 20
_MOST_CLIENTS: Final = 32
_IDLE_S: Final = 60.0
_CLOSE_S: Final = 2.0

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Request object to answer object; runs in the pipeline's loop, so it must be quick."""


class QueryServer:
    """Serves `answer` at the data folder's socket until `close`.

    Counter: ``answer-raised`` (by error), an answer that could not be made; whoever asked is told.
    """

    def __init__(self, answer: Answer, data_dir: Path) -> None:
        self.counters = Counters("queries")
        self._answer = answer
        self._data_dir = data_dir
        self._server: asyncio.Server | None = None
        self._private: Path | None = None
        self._clients: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    async def start(self) -> None:
        """Open the socket.

        Raises
        ------
        UnavailableError
            Another pipeline runs on the same data folder.
        """
        self._data_dir.mkdir(parents=True, exist_ok=True)
        path = self._choose_path()
        self._server = await asyncio.start_unix_server(self._serve, sock=_bound(path), limit=_MOST_REQUEST_BYTES)

    async def close(self) -> None:
        """Close the socket and remove its files."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        await asyncio.sleep(0)  # a connection accepted just now gets to see that the server is closed
        serving = [task for task in self._clients.values() if task is not None]
        for client in self._clients:
            client.close()
        if serving:
            await asyncio.wait(serving, timeout=_CLOSE_S)
        with contextlib.suppress(OSError):
            self._own_path().unlink()
        if self._private is not None:
            (self._data_dir / POINTER_NAME).unlink(missing_ok=True)
            shutil.rmtree(self._private, ignore_errors=True)

    def _own_path(self) -> Path:
        return (self._private or self._data_dir) / SOCKET_NAME

    def _choose_path(self) -> Path:
        direct = self._data_dir / SOCKET_NAME
        for found in {direct, _socket_path(self._data_dir)}:
            if _is_answered(found):
                raise UnavailableError(f"another pipeline runs on {self._data_dir}; stop it or choose another --data")
        (self._data_dir / POINTER_NAME).unlink(missing_ok=True)
        if len(os.fsencode(direct)) <= _MOST_PATH_BYTES:
            return direct
        self._private = Path(tempfile.mkdtemp(prefix="sdfstream-"))  # mode 0700
        (self._data_dir / POINTER_NAME).write_text(str(self._own_path()))
        return self._own_path()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_accepted = self._server is not None and _is_allowed(writer)
        is_one_too_many = is_accepted and len(self._clients) >= _MOST_CLIENTS
        self._clients[writer] = asyncio.current_task()
        try:
            if is_one_too_many:
                writer.write(compact({"error": f"{_MOST_CLIENTS} others ask already"}).encode() + b"\n")
                return
            while is_accepted and (line := await asyncio.wait_for(reader.readline(), _IDLE_S)):
                writer.write(self._reply(line).encode() + b"\n")
                await asyncio.wait_for(writer.drain(), _IDLE_S)
        except (OSError, ValueError, TimeoutError):  # gone, too long a line, or idle
            pass
        finally:
            writer.close()
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), _CLOSE_S)
            self._clients.pop(writer, None)

    def _reply(self, line: bytes) -> str:
        try:
            request = strict_json.loads(line)
        except FormatError:
            return compact({"error": "the request is no JSON"})
        if not isinstance(request, dict):
            return compact({"error": "the request is no JSON object"})
        try:
            return compact(self._answer(request))
        except Exception as error:  # whoever asks must hear of it, whatever the bus brought into the answer
            self.counters.add("answer-raised", type(error).__name__)
            log.exception("the answer to %s could not be made", request)
            return compact({"error": f"making the answer raised {type(error).__name__}: {error}"})


def fetch(data_dir: Path, request: Mapping[str, Any], timeout_s: float = 10.0) -> dict[str, Any]:
    """Ask the pipeline that runs on `data_dir`.

    Raises
    ------
    NothingRunsError
        Nothing runs there.
    UnavailableError
        It does not answer.
    """
    path = _socket_path(data_dir)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(timeout_s)
        try:
            link.connect(str(path))
            link.sendall(json.dumps(dict(request)).encode() + b"\n")
            with link.makefile("rb") as lines:
                line = lines.readline()
            answer = (
                strict_json.loads(line, most_bytes=_MOST_ANSWER_BYTES)
                if line
                else {"error": "it closed the connection without an answer"}
            )
        except TimeoutError as error:
            raise UnavailableError(f"the pipeline on {data_dir} did not answer within {timeout_s:g} s") from error
        except (OSError, ValueError, FormatError) as error:
            raise NothingRunsError(f"no pipeline runs on {data_dir}; start one with `sdfstream up`") from error
    if not isinstance(answer, dict) or "error" in answer:
        why = answer.get("error") if isinstance(answer, dict) else answer
        raise UnavailableError(f"the pipeline on {data_dir} did not tell: {why}")
    return answer


def fetch_board(data_dir: Path, **options: Any) -> dict[str, Any]:
    """The board of the pipeline that runs on `data_dir`; `options` as in `Board.view`."""
    return fetch(data_dir, {"want": "board", **options})


def _socket_path(data_dir: Path) -> Path:
    with contextlib.suppress(OSError):
        return Path((data_dir / POINTER_NAME).read_text().strip())
    return data_dir / SOCKET_NAME


def _bound(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # left by a pipeline that was killed
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listening.bind(str(path))
    finally:
        os.umask(before)
    return listening


def _is_answered(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(1.0)
        try:
            link.connect(str(path))
        except OSError:
            return False
    return True


def _is_allowed(writer: asyncio.StreamWriter) -> bool:
    link = writer.get_extra_info("socket")
    if link is None or not hasattr(socket, "SO_PEERCRED"):
        return True  # the socket's own mode has to do
    _, user, _ = struct.unpack("3i", link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user in (0, os.geteuid())
