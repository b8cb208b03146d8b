"""Record batches of several messages in one, made once for all who take the same messages in a process.

Stages take a slice's messages one after the other, and an archive in the same process takes them again within some
seconds. Arrow fetches every column of every message from memory to join them, which at 70 rows a message is a tenth of
all that an exchange costs. So what was joined last is remembered together with the bodies that it was made of: while
they live, nothing else has their ids.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import Any, Final, NamedTuple

import pyarrow as pa

from sdfstream.records.message import Message

_FEWEST: Final = 8
"""Batches remembered in any case: of the slice that the stages are at."""
RETAINED_ROWS: Final = 1 << 21
"""Rows remembered while somebody retains them: two inserts of a million, some 300 MB."""


class _Joined(NamedTuple):
    bodies: Sequence[Any]
    batch: pa.RecordBatch | None
    """Their rows, in order; None: they cannot be joined."""
    rows: int
    """Of the bodies, which are held as long as this is."""


class Joins:
    """What was joined, by its first body. One thread joins and remembers; others may ask for `pieces`, and forget.

    Each step on the shared dictionary is one call, which Python does not interrupt.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Joined] = OrderedDict()
        self._rows = 0
        self._forgotten: deque[int] = deque()
        """Rows of what other threads have forgotten since, not yet taken off `_rows`."""
        self._retainers = 0

    def joined(self, messages: Sequence[Message]) -> pa.RecordBatch | None:
        """The rows of all `messages` in one batch, in order; None where they are not all batches of one schema."""
        bodies = [m.body for m in messages]
        if len(bodies) == 1:
            return bodies[0] if isinstance(bodies[0], pa.RecordBatch) else None
        known = self._known.get(id(bodies[0])) if bodies else None
        if known is not None and len(known.bodies) == len(bodies) and all(map(is_, known.bodies, bodies)):
            return known.batch
        batch = _join(self.pieces(bodies))
        self.remember(bodies, batch)
        return batch

    def remember(self, bodies: Sequence[Any], batch: pa.RecordBatch | None) -> None:
        """Take that `batch` has the rows of `bodies`, in order."""
        if not bodies:
            return
        first = id(bodies[0])
        known = self._known.get(first)
        if known is not None and len(known.bodies) > len(bodies):
            return  # one stage's events lie between the messages of another's
        self._forget(first)
        rows = sum(getattr(body, "num_rows", 1) for body in bodies) if batch is None else batch.num_rows
        self._known[first] = _Joined(bodies, batch, rows)
        self._rows += rows
        while self._forgotten:
            self._rows -= self._forgotten.popleft()
        most = RETAINED_ROWS if self._retainers else 0
        while len(self._known) > _FEWEST and self._rows > most:
            self._rows -= self._known.popitem(last=False)[1].rows

    def pieces(self, bodies: Sequence[Any]) -> list[Any]:
        """`bodies`, with the batch of several in place of those that follow each other as they were joined."""
        found, i = [], 0
        while i < len(bodies):
            known = self._known.get(id(bodies[i]))
            size = 1 if known is None else len(known.bodies)
            if known is None or known.batch is None or not all(map(is_, known.bodies, bodies[i : i + size])):
                found.append(bodies[i])
                i += 1
                continue
            if i + size > len(bodies):
                found += bodies[i:]
                break
            found.append(known.batch)
            i += size
        return found

    def forget(self, bodies: Iterable[Any]) -> None:
        """Nobody will ask for any of these again."""
        for body in bodies:
            self._forget(id(body))

    @contextmanager
    def retained(self) -> Iterator[None]:
        """Remember up to `RETAINED_ROWS`, for one who takes messages some seconds after the stages."""
        self._retainers += 1
        try:
            yield
        finally:
            self._retainers -= 1

    def _forget(self, first: int) -> None:
        joined = self._known.pop(first, None)
        if joined is not None:
            self._forgotten.append(joined.rows)


def _join(bodies: list[Any]) -> pa.RecordBatch | None:
    if not all(isinstance(body, pa.RecordBatch) for body in bodies):
        return None
    try:
        return bodies[0] if len(bodies) == 1 else pa.concat_batches(bodies)
    except pa.ArrowException:  # producers of two versions, a null in a dictionary
        return None


JOINS: Final = Joins()
"""Those of this process."""
