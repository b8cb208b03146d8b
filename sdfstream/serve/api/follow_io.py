"""The stream of changes to those who follow it: each reads the one log at its own pace, so none costs memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

from sdfstream.records.message import Message
from sdfstream.serve.api.encoding import encoded
from sdfstream.serve.api.pictures_io import Pictures
from sdfstream.serve.api.problem import ProblemError
from sdfstream.serve.api.stream import GAP, ChangeLog, framed, gap

MOST_FOLLOWERS: Final = 64
AGE_S: Final = 5.0
"""How often a follower is told how old the data is; also keeps proxies from closing the connection."""
_AT_ONCE: Final = 500
RETRY: Final = b"retry: 2000\n\n"


class Followers:
    """Gives out the changes of a log."""

    def __init__(self, log: ChangeLog, pictures: Pictures) -> None:
        self.log = log
        self._pictures = pictures
        self._changed = asyncio.Event()
        self._closed = False
        self._count = 0

    async def take(self, messages: Iterable[Message]) -> None:
        """Take what the bus carried, and wake the followers."""
        if self.log.take(messages):
            self._wake()

    def close(self) -> None:
        """End every stream."""
        self._closed = True
        self._wake()

    def follow(self, names: Sequence[str], last_id: str | None) -> AsyncIterator[bytes]:
        """The stream of a new follower; ProblemError 429 when there are too many."""
        if self._count >= MOST_FOLLOWERS:
            raise ProblemError(429, f"{MOST_FOLLOWERS} follow already; try again later")
        return self._stream(names, last_id)

    async def _stream(self, names: Sequence[str], last_id: str | None) -> AsyncIterator[bytes]:
        self._count += 1
        try:
            n, missed = self.log.start(last_id)
            yield RETRY + self._age(n)
            while not self._closed:
                changed = self._changed
                if missed:
                    yield framed(GAP, encoded(gap()), self.log.id_of(n))
                    missed = False
                found, n = self.log.since(n, names, _AT_ONCE)
                if found:
                    yield b"".join(framed(c.name, c.data, self.log.id_of(c.n)) for c in found)
                    n, missed = self.log.after(n)  # a slow reader may have been overtaken
                    continue
                if n < self.log.newest:
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), AGE_S)
                except TimeoutError:
                    yield self._age(n)
        finally:
            self._count -= 1

    def _age(self, n: int) -> bytes:
        return framed("age", encoded(self._pictures.now().head), self.log.id_of(n))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
