"""A write to a closed connection is a connection error, on either event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
import uvloop

from sdfstream.bus.link.write_io import write


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_write_after_the_close_is_a_connection_error_or_nothing(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def write_late() -> None:
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.transport.abort()
            await asyncio.sleep(0.05)
            try:
                write(writer, b"late")
            except ConnectionResetError:
                pass
            except Exception as error:
                closed.set_exception(error)
                return
            closed.set_result(None)

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            await closed
        finally:
            writer.close()
            server.close()

    loop = new_loop()
    try:
        loop.run_until_complete(write_late())
    finally:
        loop.close()
