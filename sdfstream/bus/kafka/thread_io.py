"""An event loop in a thread of its own, for what must go on while the process's own loop is busy for seconds."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")
_END_S: Final = 10.0


class LoopThread:
    """A daemon thread that runs coroutines handed to it; `start`, then `run`, in the end `end`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether it was started and has not ended."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns or raises, run in the thread; cancelled along with its caller."""
        given: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return await asyncio.wrap_future(given)

    async def end(self) -> None:
        """Cancel what still runs, and wait for the thread to end, 10 s at most."""
        if self.alive:
            self._loop.call_soon_threadsafe(self._loop.stop)
            await asyncio.to_thread(self._thread.join, _END_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()
