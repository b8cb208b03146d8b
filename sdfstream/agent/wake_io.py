"""What the agent's loop waits for: an instant or a call before it, and work in helper threads, which is watched."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from sdfstream.agent.host_io import HostAgent, Survey
from sdfstream.troubles import Helper


class Wake:
    """Wakes one waiting task; made in the loop that it belongs to."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._called = False
        self._waiting: asyncio.Future[None] | None = None

    def call(self) -> None:
        """End the wait, or the next one at once."""
        self._called = True
        self._resolve()

    async def until(self, at_s: float) -> bool:
        """Wait until the loop's clock shows `at_s`, at least for one round of the loop; whether a call ended it."""
        if not self._called:
            self._waiting = self._loop.create_future()
            timer = self._loop.call_at(at_s, self._resolve)
            try:
                await self._waiting
            finally:
                timer.cancel()
                self._waiting = None
        else:
            await asyncio.sleep(0)
        called, self._called = self._called, False
        return called

    def _resolve(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)


async def surveyed(pool: ThreadPoolExecutor, host: HostAgent) -> Survey:
    """A survey of a host's NICs made in `pool`; the sockets it opened are closed when this is cancelled."""
    survey = pool.submit(host.survey())
    try:
        return await asyncio.wrap_future(survey)
    except asyncio.CancelledError:
        if not survey.cancelled():
            survey.result().discard()
        raise


@contextlib.contextmanager
def working(helper: Helper) -> Iterator[None]:
    """Note that the thread `helper` has work, while the block waits for it."""
    helper.begin(time.monotonic())
    try:
        yield
    finally:
        helper.rest()


async def until_set(stop: asyncio.Event) -> None:
    """Wait until `stop` is set; a task."""
    await stop.wait()
