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
from itertools import accumulate
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
    start: Sequence[int]
    """First row of each body, and the number of all rows, of bodies that are held as long as this is."""

    @property
    def rows(self) -> int:
        """Of all bodies."""
        return self.start[-1]

    def holds(self, i: int, bodies: Sequence[Any]) -> int:
        """How many of these bodies follow each other from number `i` on."""
        n = min(len(bodies), len(self.bodies) - i)
        same = map(is_, self.bodies[i : i + n], bodies)
        return next((k for k, one in enumerate(same) if not one), n)

    def rows_of(self, i: int, n: int) -> pa.RecordBatch:
        """The rows of `n` bodies from number `i` on; not where they cannot be joined."""
        assert self.batch is not None
        first, end = self.start[i], self.start[i + n]
        return self.batch if end - first == self.rows else self.batch.slice(first, end - first)


class Joins:
    """What was joined, by its first body. One thread joins and remembers; others may ask for `pieces`, and forget.

    Each step on the shared dictionaries is one call, which Python does not interrupt.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[int, _Joined] = OrderedDict()
        self._where: dict[int, tuple[int, int]] = {}
        """Of each body the first one that it was joined with, and its own number among these."""
        self._rows = 0
        self._forgotten: deque[int] = deque()
        """Rows of what other threads have forgotten since, not yet taken off `_rows`."""
        self._retainers = 0

    def joined(self, messages: Sequence[Message]) -> pa.RecordBatch | None:
        """The rows of all `messages` in one batch, in order; None where they are not all batches of one schema."""
        bodies = [m.body for m in messages]
        if len(bodies) == 1:
            return bodies[0] if isinstance(bodies[0], pa.RecordBatch) else None
        known, i = self._find(bodies[0]) if bodies else (None, 0)
        if known is not None and known.holds(i, bodies) == len(bodies):
            if known.batch is not None:
                return known.rows_of(i, len(bodies))
            if len(known.bodies) == len(bodies):
                return None
        batch = _join(self.pieces(bodies))
        self.remember(bodies, batch)
        return batch

    def _find(self, body: Any) -> tuple[_Joined | None, int]:
        """What holds a body, and its number there. An id may be another's by now, which whoever compares will see."""
        first, i = self._where.get(id(body), (0, 0))
        return self._known.get(first), i

    def remember(self, bodies: Sequence[Any], batch: pa.RecordBatch | None) -> None:
        """Take that `batch` has the rows of `bodies`, in order."""
        if not bodies:
            return
        first = id(bodies[0])
        known = self._known.get(first)
        if known is not None and len(known.bodies) > len(bodies):
            return  # one stage's events lie between the messages of another's
        self._forget(first)
        start = list(accumulate((getattr(body, "num_rows", 1) for body in bodies), initial=0))
        self._known[first] = _Joined(bodies, batch, start)
        self._where.update({id(body): (first, i) for i, body in enumerate(bodies)})
        self._rows += start[-1]
        while self._forgotten:
            self._rows -= self._forgotten.popleft()
        most = RETAINED_ROWS if self._retainers else 0
        while len(self._known) > _FEWEST and self._rows > most:
            self._rows -= self._dropped(self._known.popitem(last=False)[1])

    def pieces(self, bodies: Sequence[Any]) -> list[Any]:
        """`bodies`, with one batch in place of those that follow each other as they were joined."""
        found, i = [], 0
        while i < len(bodies):
            known, k = self._find(bodies[i])
            n = 0 if known is None or known.batch is None else known.holds(k, bodies[i : i + len(known.bodies) - k])
            if known is None or n < 2:
                found.append(bodies[i])
                i += 1
                continue
            found.append(known.rows_of(k, n))
            i += n
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
            self._forgotten.append(self._dropped(joined))

    def _dropped(self, joined: _Joined) -> int:
        for body in joined.bodies:
            self._where.pop(id(body), None)
        return joined.rows


def _join(bodies: list[Any]) -> pa.RecordBatch | None:
    if not all(isinstance(body, pa.RecordBatch) for body in bodies):
        return None
    try:
        return bodies[0] if len(bodies) == 1 else pa.concat_batches(bodies)
    except pa.ArrowException:  # producers of two versions, a null in a dictionary
        return None


JOINS: Final = Joins()
"""Those of this process."""
