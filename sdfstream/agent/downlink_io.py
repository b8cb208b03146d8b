"""Messages from the bus to an agent (commands, mesh plans), also while the bus is not there yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import cast

from sdfstream.agent.bus_io import WaitingBus
from sdfstream.agent.downlink import Downlink
from sdfstream.bus import Bus, Subscription
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.errors import BusError, UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.records.message import Message
from sdfstream.records.topics import COMMAND, MESH


@asynccontextmanager
async def downlink_of(config: AgentConfig, publishers: Sequence[object]) -> AsyncIterator[Downlink | None]:
    """Where commands and plans for this agent come from: the link or the Kafka client among its publishers, if any."""
    hosts = [h.host for h in config.hosts]
    link = next((p for p in publishers if isinstance(p, LinkPublisher)), None)
    bus = next((p for p in publishers if hasattr(p, "subscribe") and p is not link), None)
    topics = [COMMAND.name] * config.control + [MESH.name] * (config.mesh == "auto")
    if not topics or (link is None and bus is None):
        yield None
    elif link is not None:
        link.subscribe(topics, hosts)
        yield link
    else:
        group = f"agent-control-{hosts[0]}"
        opened: list[Subscription] = []

        async def subscribe() -> CommittedDownlink:
            opened.append(await cast(Bus, bus).subscribe(group, topics))
            return CommittedDownlink(opened[0])

        try:
            yield await downlink_from(bus, subscribe)
        finally:
            for subscription in opened:
                await subscription.close()


async def downlink_from(bus: object, open_downlink: Callable[[], Awaitable[Downlink]]) -> Downlink:
    """A downlink of `bus`: opened now where the bus is there, else by its first reader."""
    late = LateDownlink(open_downlink)
    if not isinstance(bus, WaitingBus) or bus.is_there():
        await late.open()
    return late


class LateDownlink:
    """A downlink that is opened at its first `read`: only its reader waits for the bus."""

    def __init__(self, open_downlink: Callable[[], Awaitable[Downlink]]) -> None:
        self._open = open_downlink
        self._opened: Downlink | None = None

    async def read(self, timeout_s: float) -> list[Message]:
        """Messages since the last call; BusError when none can come."""
        return await (await self.open()).read(timeout_s)

    async def open(self) -> Downlink:
        """Open the downlink now: `read` returns messages published from then on."""
        if self._opened is None:
            try:
                self._opened = await self._open()
            except UnavailableError as error:
                raise BusError(str(error)) from error
        return self._opened


class CommittedDownlink:
    """A subscription committed as it is read: a command that is lost in between is renewed by the controller anyway."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription

    async def read(self, timeout_s: float) -> list[Message]:
        """Messages since the last call; their position is committed before they are returned."""
        messages = await self._subscription.read(timeout_s=timeout_s)
        if messages:
            await self._subscription.commit()
        return messages
