"""One JSON object a line over a TCP connection, within bounds: how two ends of a test learn of each other."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any, Final

from sdfstream import strict_json
from sdfstream.errors import FormatError, UnavailableError

_MOST_LINE: Final = 1 << 16


def send(connection: socket.socket, what: dict[str, Any]) -> None:
    """Send one object."""
    connection.sendall(json.dumps(what).encode() + b"\n")


def receive(connection: socket.socket) -> dict[str, Any]:
    """Receive one object.

    Raises
    ------
    FormatError
        The other end closed, sent more than 64 KiB without a line's end, or no JSON object.
    """
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = connection.recv(4096)
        if not piece or len(line) > _MOST_LINE:
            raise FormatError("peer", "the other end closed, or sent something endless")
        line += piece
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
