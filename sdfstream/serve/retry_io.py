"""What a process needs and what is not there yet: it waits a while, says so, and then gives up with the reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from sdfstream.errors import UnavailableError
from sdfstream.runtime.output_io import progress

PATIENCE_S: Final = 60.0
"""So long a server may be away while those who need it start: after a power failure all start at once."""
_EVERY_S: Final = 1.0

T = TypeVar("T")


async def opened(open_it: Callable[[], T], stop: asyncio.Event, patience_s: float = PATIENCE_S) -> T:
    """What `open_it` gives, tried again and again in a thread while nobody answers.

    Raises
    ------
    UnavailableError
        Nobody answered for so long, or until told to stop.
    """
    loop = asyncio.get_running_loop()
    deadline_s, told = loop.time() + patience_s, False
    while True:
        try:
            return await asyncio.to_thread(open_it)
        except UnavailableError as error:
            if loop.time() >= deadline_s or stop.is_set():
                raise
            if not told:
                progress(f"{error}; trying for {patience_s:g} s")
                told = True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), _EVERY_S)
