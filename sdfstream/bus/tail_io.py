"""The tail of some topics for one process: a consumer group of its own that starts at the end and commits nothing.

Messages that entered the bus while the process was away are not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.bus import Bus, Subscription
from sdfstream.records.message import Message
from sdfstream.stats import Counters


class Tail:
    """Reads some topics from their end on, and drops messages under other keys.

    Notes
    -----
    Counters: ``heard`` and ``for-others``.
    """

    def __init__(self, subscription: Subscription, keys: Sequence[str] | None) -> None:
        self.counters = Counters("listener")
        self._subscription = subscription
        self._keys = None if keys is None else frozenset(keys)

    @classmethod
    async def open(cls, bus: Bus, group: str, topics: Sequence[str], keys: Sequence[str] | None = None) -> Tail:
        """Begin at the end of `topics`; `group` must have no other member. Closing the bus closes it.

        Raises
        ------
        FormatError
            ``topic-unknown``.
        BusError
            The bus cannot be read.
        """
        return cls(await bus.subscribe(group, topics), keys)

    async def read(self, timeout_s: float) -> list[Message]:
        """Messages under our keys since the last call; empty after `timeout_s`, or sooner when all had other keys."""
        found = await self._subscription.read(timeout_s=timeout_s)
        ours = found if self._keys is None else [m for m in found if m.key in self._keys]
        self.counters.add("heard", n=len(ours))
        self.counters.add("for-others", n=len(found) - len(ours))
        return ours
