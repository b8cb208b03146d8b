"""From the agent to the bus: a bounded buffer, so that a bus that is away costs old rows and never memory or time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import pyarrow as pa

from sdfstream.records.message import Output
from sdfstream.stats import Counters

_log = logging.getLogger("sdfstream.agent")

MAX_BYTES: Final = 16 << 20
"""Kept while the bus is away: about a minute of 1,440 exchanges a second."""
_EVENT_BYTES: Final = 4096
"""What an event is taken to weigh."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 2.0


class Publisher(Protocol):
    """Takes an agent's outputs: a bus, a recording, a test."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Take `outputs`, all or none, in order; returns when they are taken. Raises when it cannot."""


class PublishBuffer:
    """Outputs on their way to the publisher.

    What cannot be published stays, in order, and is tried again; beyond `max_bytes` the oldest bulk output goes
    first and is counted as ``shed`` (rows). Events are few and go before bulk.
    """

    def __init__(self, publisher: Publisher, counters: Counters, max_bytes: int = MAX_BYTES) -> None:
        self._publisher = publisher
        self._counters = counters
        self._max_bytes = max_bytes
        self._events: deque[Output] = deque()
        self._bulk: deque[Output] = deque()
        self._bytes = 0
        self._wake = asyncio.Event()
        self._reachable = True

    def put(self, outputs: Sequence[Output]) -> None:
        """Take outputs; never waits."""
        for output in outputs:
            (self._bulk if isinstance(output.body, pa.RecordBatch) else self._events).append(output)
            self._bytes += _weight(output)
        while self._bytes > self._max_bytes:
            oldest = (self._bulk or self._events).popleft()
            self._bytes -= _weight(oldest)
            self._counters.add("shed", "bulk" if isinstance(oldest.body, pa.RecordBatch) else "event", _rows(oldest))
        if outputs:
            self._wake.set()

    async def run(self) -> None:
        """Publish for ever."""
        pause_s = _FIRST_PAUSE_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            if await self._once():
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                self._wake.set()

    async def drain(self, timeout_s: float) -> None:
        """Publish what is left, at most for `timeout_s`; what then remains is counted as shed."""
        try:
            async with asyncio.timeout(timeout_s):
                while (self._events or self._bulk) and await self._once():
                    pass
        except TimeoutError:
            pass
        rows = sum(_rows(o) for o in (*self._events, *self._bulk))
        self._counters.add("shed", "at-end", rows)

    async def _once(self) -> bool:
        """Try to publish everything; whether it was taken."""
        outputs = [*self._events, *self._bulk]
        if not outputs:
            return True
        self._events.clear()
        self._bulk.clear()
        self._bytes = 0
        try:
            await self._publisher.publish(outputs)
        except Exception as error:  # whatever the publisher is, the agent outlives its failure
            self._put_back(outputs)
            self._failed(error)
            return False
        except asyncio.CancelledError:
            self._put_back(outputs)
            raise
        self._counters.add("published", "rows", sum(_rows(o) for o in outputs))
        if not self._reachable:
            self._reachable = True
            _log.warning("the bus is back")
        return True

    def _put_back(self, outputs: Sequence[Output]) -> None:
        newer = [*self._events, *self._bulk]
        self._events.clear()
        self._bulk.clear()
        self._bytes = 0
        self.put([*outputs, *newer])

    def _failed(self, error: Exception) -> None:
        self._counters.add("publish-failed", type(error).__name__)
        if self._reachable:
            self._reachable = False
            _log.warning("the bus is away, keeping up to %d MiB: %s", self._max_bytes >> 20, error)


def _weight(output: Output) -> int:
    return int(output.body.nbytes) if isinstance(output.body, pa.RecordBatch) else _EVENT_BYTES


def _rows(output: Output) -> int:
    return int(output.body.num_rows) if isinstance(output.body, pa.RecordBatch) else 1
