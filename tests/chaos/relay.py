"""A way to the broker that can be cut: TCP passed on, both ways, as it is.

``python -m tests.chaos.relay PORT TARGET_PORT``. Stopped (SIGSTOP) it is a black hole: connections stay, nothing comes
through, nobody is told. Continued, everything that waited goes on.
"""

from __future__ import annotations

import asyncio
import sys


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def _main(port: int, target: int) -> None:
    passing: set[asyncio.Task[None]] = set()

    async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", target)
        except OSError:
            writer.close()
            return
        for one in (_pass_on(reader, far_writer), _pass_on(far_reader, writer)):
            task = asyncio.create_task(one)
            passing.add(task)
            task.add_done_callback(passing.discard)

    server = await asyncio.start_server(taken, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1]), int(sys.argv[2])))
