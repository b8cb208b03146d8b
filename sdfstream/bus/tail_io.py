"""An ear on a bus for one process: a consumer group of its own, from the end, nothing committed.

What was said while it was away it does not hear.
"""

from __future__ import annotations

from collections.abc import Sequence

from sdfstream.bus import Bus, Subscription
from sdfstream.records.message import Message
from sdfstream.stats import Counters


class Listener:
    """Reads some topics of a bus for one process and drops what is under other keys.

    Notes
    -----
    Counters: ``heard`` and ``for-others``.
    """

    def __init__(self, subscription: Subscription, keys: Sequence[str] | None) -> None:
        self.counters = Counters("listener")
        self._subscription = subscription
        self._keys = None if keys is None else frozenset(keys)

    @classmethod
    async def open(cls, bus: Bus, group: str, topics: Sequence[str], keys: Sequence[str] | None = None) -> Listener:
        """Begin at the end of `topics`; `group` must be nobody else's. Closing the bus closes it.

        Raises
        ------
        FormatError
            ``topic-unknown``.
        BusError
            The bus cannot be read.
        """
        return cls(await bus.subscribe(group, topics), keys)

    async def read(self, timeout_s: float) -> list[Message]:
        """What came since the last call under our keys; empty after `timeout_s`, or sooner when all was for others."""
        found = await self._subscription.read(timeout_s=timeout_s)
        ours = found if self._keys is None else [m for m in found if m.key in self._keys]
        self.counters.add("heard", n=len(ours))
        self.counters.add("for-others", n=len(found) - len(ours))
        return ours
