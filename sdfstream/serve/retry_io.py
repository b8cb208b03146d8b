"""Opening a server that is not there yet: retry for a while, say so, then give up with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from sdfstream.errors import UnavailableError
from sdfstream.runtime.output_io import progress

RETRY_FOR_S: Final = 60.0
"""How long to retry: after a power failure servers and their clients start at the same time."""
_EVERY_S: Final = 1.0

T = TypeVar("T")


async def open_with_retry(open_it: Callable[[], T], stop: asyncio.Event, retry_for_s: float = RETRY_FOR_S) -> T:
    """The result of `open_it`, retried in a thread while the server is unavailable.

    Raises
    ------
    UnavailableError
        The server was unavailable for `retry_for_s`, or until `stop` was set.
    """
    loop = asyncio.get_running_loop()
    deadline_s, reported = loop.time() + retry_for_s, False
    while True:
        try:
            return await asyncio.to_thread(open_it)
        except UnavailableError as error:
            if loop.time() >= deadline_s or stop.is_set():
                raise
            if not reported:
                progress(f"{error}; trying for {retry_for_s:g} s")
                reported = True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _EVERY_S)
