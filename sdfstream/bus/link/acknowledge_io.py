"""Acknowledgements of a link's frames: one for all that were taken within a moment.

Each one wakes the agent's process, which often preempts the pipeline's. Who publishes rows waits for nothing else
meanwhile; who publishes an event may.

While the pipeline is behind, acknowledgements come late, so that its agents send less: what waits on the bus is old
when it is read, what waits at an agent can be thinned out (`agent.pressure`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

EVENT_PAUSE_S: Final = 0.002
BULK_PAUSE_S: Final = 0.02
BEHIND_S: Final = 1.0
"""From here on the pipeline is behind."""
HELD_S: Final = 0.25
"""How long an acknowledgement is held back then; an event behind rows waits as long."""
_LOOKS: Final = 10


class Acknowledgements:
    """Acknowledges the frames of one connection.

    Parameters
    ----------
    answer : callable
        Sends the number of frames that were taken.
    behind_s : callable, optional
        By how much the pipeline is behind the bus.
    """

    def __init__(self, answer: Callable[[int], Awaitable[None]], behind_s: Callable[[], float] | None = None) -> None:
        self._behind_s = behind_s
        self.taken = 0
        self._answer = answer
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._timer: asyncio.Handle | None = None
        self._due_at_s = 0.0
        """When `_timer` is due: uvloop has a handle without a time for what is due at once."""

    def take(self, *, bulk: bool) -> None:
        """Another frame was taken: with rows, or an event."""
        self.taken += 1
        at_s = self._loop.time() + (BULK_PAUSE_S if bulk else EVENT_PAUSE_S)
        if self._timer is not None:
            if self._due_at_s <= at_s:
                return
            self._timer.cancel()
        self._timer, self._due_at_s = self._loop.call_at(at_s, self._due.set), at_s

    @property
    def pending(self) -> bool:
        """Whether frames were taken that are not acknowledged."""
        return self._timer is not None

    async def run(self) -> None:
        """Acknowledge, until cancelled; what is `pending` then is for the caller."""
        while True:
            await self._due.wait()
            await self._hold()
            self._due.clear()
            self._timer = None
            await self._answer(self.taken)

    async def _hold(self) -> None:
        for _ in range(_LOOKS):
            if self._behind_s is None or self._behind_s() <= BEHIND_S:
                return
            await asyncio.sleep(HELD_S / _LOOKS)

    def end(self) -> None:
        """Acknowledge nothing more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
