"""Writing to a connection that the other end, or a server that closes, may end at any moment."""

from __future__ import annotations

import asyncio


def write(writer: asyncio.StreamWriter, raw: bytes) -> None:
    """Queue `raw` to be sent.

    Raises
    ------
    ConnectionResetError
        The connection is closed. uvloop says RuntimeError, which no one takes for that.
    """
    try:
        writer.write(raw)
    except RuntimeError as error:
        raise ConnectionResetError(str(error)) from error
