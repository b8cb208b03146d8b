"""Two subscriptions read as one: topics dealt out among a group's members, and topics of which each reads all."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from sdfstream.bus import Bus, Subscription
from sdfstream.records.message import Message


@dataclass(slots=True)
class Joined:
    """`first` is waited for; of `second` what is there is taken along (`Subscription` protocol)."""

    first: Subscription
    second: Subscription

    async def read(self, max_messages: int = 1000, timeout_s: float = 0.1) -> list[Message]:
        """Messages of both, in bus order within one call."""
        found = await self.second.read(max_messages, 0.0)
        found += await self.first.read(max_messages, 0.0 if found else timeout_s)
        return sorted(found, key=lambda m: (m.bus_at_ns, m.topic, m.bus_seq))

    async def commit(self) -> None:
        """Everything read so far is dealt with."""
        await self.first.commit()
        await self.second.commit()

    def lag(self) -> int:
        """Messages of both on the bus that were not read yet."""
        return self.first.lag() + self.second.lag()

    async def close(self) -> None:
        """Leave both groups."""
        try:
            await self.first.close()
        finally:
            await self.second.close()


async def subscribe(bus: Bus, group: str, topics: Sequence[str], for_all: Sequence[str] = ()) -> Subscription:
    """Join `group` for `topics`; those of them that are `for_all` come, from now on, to each member.

    They come through a group that has no other member.
    """
    dealt = await bus.subscribe(group, [topic for topic in topics if topic not in for_all])
    if not for_all:
        return dealt
    try:
        return Joined(dealt, await bus.subscribe(f"{group}-{uuid.uuid4().hex}", for_all))
    except BaseException:
        await dealt.close()
        raise
