"""The control socket of one host's share of a job: newline-delimited JSON, one answer a request.

``list``, ``set`` and ``undo`` are for the host's agent; ``stats`` and ``stop`` for the job's starter.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError
from sdfstream.qpcontrol.rules import QpControl, RefusedError
from sdfstream.stats import Counters

_LINE_BYTES: Final = 1 << 20
"""A failover command lists the probe paths of every segment of every alternate."""

Ask = Callable[[], dict[str, Any]]


class ControlServer:
    """Serves the control socket of `host`.

    Parameters
    ----------
    path : Path
        Of the socket; its folder must be ours alone.
    host : str
    control : QpControl
    other : mapping of verb to callable
        ``list``, ``stats``, ``stop``.
    counters : Counters
        Gets ``control`` (``ok`` or why it was refused).
    """

    def __init__(self, path: Path, host: str, control: QpControl, other: Mapping[str, Ask], counters: Counters) -> None:
        self.path = path
        self._host = host
        self._control = control
        self._other = other
        self._counters = counters
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Begin to answer."""
        self.path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._serve, str(self.path), limit=_LINE_BYTES)
        finally:
            os.umask(before)

    async def close(self) -> None:
        """Stop answering and take the socket away."""
        if self._server is not None:
            self._server.close()
        self.path.unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, asyncio.CancelledError):
            if _uid(writer.get_extra_info("socket")) in (0, os.getuid()):
                while line := await reader.readline():  # ValueError: longer than any request
                    writer.write(json.dumps(self._answer(line)).encode() + b"\n")
                    await writer.drain()
        writer.close()

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = strict_json.loads(line)
            if not isinstance(request, dict):
                raise RefusedError("malformed", "a request is a JSON object")
            answer = self._do(request)
        except (FormatError, ValueError) as error:
            answer = {"error": f"malformed: {error}"}
            self._counters.add("control", "malformed")
        except RefusedError as refusal:
            answer = {"error": str(refusal)}
            self._counters.add("control", refusal.reason)
        return answer

    def _do(self, request: dict[str, Any]) -> dict[str, Any]:
        what = request.get("do")
        if what == "set":
            answer = self._control.set(request, self._host, time.time_ns(), time.monotonic_ns())
        elif what == "undo":
            answer = self._control.undo(request, self._host, time.monotonic_ns())
        elif isinstance(what, str) and what in self._other:
            return self._other[what]()
        else:
            raise RefusedError("malformed", f"no such request: {what!r}")
        self._counters.add("control", "ok")
        return answer


def _uid(peer: Any) -> int:
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("=iII", credentials)[1])
