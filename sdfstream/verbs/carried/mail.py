"""What the thread has found for one host, until the agent's loop takes it. One puts, the other takes; no call waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa

from sdfstream.stats import Counters

MOST_BATCHES: Final = 1_024
"""Of rows that wait for the loop, which takes them every flush: half a minute's."""

Entry = dict[str, Any]
_NAMES: Final = ("role", "observer", "src", "dst", "transport", "path", "dscp")


class HostMail:
    """Rows and liveness of one host.

    Parameters
    ----------
    counters : Counters
        Gets ``shed.rows``.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._rows: deque[pa.RecordBatch] = deque()
        self._changes: deque[tuple[int, Entry]] = deque()
        self._put = 0
        """Changes that were put so far."""
        self._every: tuple[int, tuple[Entry, ...]] = (0, ())
        """All paths, as of so many changes."""
        self.devices: Mapping[str, str] = MappingProxyType({})
        """NIC id to RDMA device of those that answer, or did when their device was last there."""

    def put_rows(self, batch: pa.RecordBatch) -> None:
        """Rows of finished exchanges; beyond `MOST_BATCHES` the oldest are shed."""
        self._rows.append(batch)
        if len(self._rows) > MOST_BATCHES:
            self._counters.add("shed", "rows", self._rows.popleft().num_rows)

    def put_states(self, changes: Sequence[Entry], every: Sequence[Entry]) -> None:
        """Paths that changed their state, and all paths as they are after that.

        All of them each time: what the loop has taken of changes must not be older in a complete list.
        """
        first = self._put + 1
        self._put += len(changes)
        self._every = self._put, tuple(every)  # before the changes: a list that knows them is never too early
        self._changes.extend(enumerate(changes, first))

    @property
    def has_changes(self) -> bool:
        """Whether `changes` has some."""
        return bool(self._changes)

    def rows(self) -> list[pa.RecordBatch]:
        """The rows since the last call."""
        return [self._rows.popleft() for _ in range(len(self._rows))]

    def changes(self, *, complete: bool) -> list[Entry]:
        """What changed since the last call; `complete`: the newest state of every path, and what is over."""
        fresh = [self._changes.popleft() for _ in range(len(self._changes))]
        if not complete:
            return [entry for _, entry in fresh]
        upto, every = self._every
        older = [entry for n, entry in fresh if n <= upto]
        newer = [entry for n, entry in fresh if n > upto]
        return list({tuple(e[name] for name in _NAMES): e for e in (*older, *every, *newer)}.values())
