"""One JSON object a line over a TCP connection, within bounds: how two ends of a test learn of each other."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError, UnavailableError

_MOST_LINE: Final = 1 << 16
_SHORTEST_S: Final = 0.001
"""A time-out of nothing would not wait at all, and say so in other words."""


def send(connection: socket.socket, what: dict[str, Any]) -> None:
    """Send one object."""
    connection.sendall(json.dumps(what).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any]:
    """Receive one object; the connection's time-out, where it has one, is that of the whole line.

    Raises
    ------
    FormatError
        The other end closed, sent more than 64 KiB without a line's end, or no JSON object.
    TimeoutError
        The line did not end in time, however its bytes came.
    """
    line = bytearray()
    within_s = connection.gettimeout()
    ends_s = time.monotonic() + (within_s or 0.0)
    try:
        while not line.endswith(b"\n"):
            if within_s is not None:
                connection.settimeout(max(_SHORTEST_S, ends_s - time.monotonic()))
            piece = connection.recv(4096)
            if not piece or len(line) > _MOST_LINE:
                raise FormatError("peer", "the other end closed, or sent something endless")
            line += piece
            if within_s is not None and time.monotonic() > ends_s and not line.endswith(b"\n"):
                raise TimeoutError("no whole line in time")
    finally:
        connection.settimeout(within_s)
    said = strict_json.loads(bytes(line), most_bytes=2 * _MOST_LINE)
    if not isinstance(said, dict):
        raise FormatError("peer", "not a JSON object")
    return said


def whole(said: dict[str, Any], key: str, below: int = 1 << 64) -> int:
    """A whole number that the other end said. FormatError: it is none, or not below the limit."""
    value = said.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
        raise FormatError("peer", f"{key} is {value!r}")
    return value


def text(said: dict[str, Any], key: str, most: int = 64) -> str:
    """A short text that the other end said. FormatError: it is none, empty or too long."""
    value = said.get(key)
    if not isinstance(value, str) or not 0 < len(value) <= most:
        raise FormatError("peer", f"{key} is {value!r}")
    return value


@contextlib.contextmanager
def as_unavailable() -> Iterator[None]:
    """Network and protocol errors as the verb's own."""
    try:
        yield
    except (OSError, FormatError) as error:
        raise UnavailableError(f"the other end: {error}") from error
