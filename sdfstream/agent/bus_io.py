"""The publishers of an agent: a bus, also while its brokers are not there yet, a link, or a recording."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sdfstream.agent.publish_io import OutputPublisher
from sdfstream.bus import Bus, Subscription
from sdfstream.errors import BusError, ConfigError, SdfError, UnavailableError
from sdfstream.records.message import Output
from sdfstream.stats import Counters

if TYPE_CHECKING:
    from sdfstream.bus.kafka.config import KafkaConfig

_log = logging.getLogger("sdfstream.agent")

_AGAIN_S: Final = (1.0, 10.0)
"""First and longest pause between tries to reach the brokers; each doubles the one before."""
_FIRST_TRY_S: Final = 5.0
"""After this the agent starts without its bus; the first attempt continues."""


class WaitingBus:
    """A bus that may not be there yet: an agent that starts while its brokers are away probes at once.

    Parameters
    ----------
    open_bus : callable
        Opens the bus; UnavailableError: try again.
    """

    def __init__(self, open_bus: Callable[[], Awaitable[Bus]]) -> None:
        self.counters = Counters("waiting-bus")
        self._open = open_bus
        self._bus: Bus | None = None
        self._there = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Try once; where nothing answers, go on trying in the background.

        Raises
        ------
        ConfigError
            The brokers answer, and say that it can never work.
        """
        first = asyncio.ensure_future(self._open())
        try:
            self._bus = await asyncio.wait_for(asyncio.shield(first), _FIRST_TRY_S)
        except (UnavailableError, BusError, TimeoutError) as error:
            _log.warning("the bus is not there yet, outputs are kept: %s", str(error) or "no answer")
            self._task = asyncio.create_task(self._try_on(first), name="waiting-bus")
        else:
            self._there.set()

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Publish once the bus is there."""
        await (await self.bus()).publish(outputs)

    async def subscribe(self, group: str, topics: Sequence[str]) -> Subscription:
        """Subscribe once the bus is there."""
        return await (await self.bus()).subscribe(group, topics)

    async def bus(self) -> Bus:
        """The bus, once it is there."""
        await self._there.wait()
        assert self._bus is not None
        return self._bus

    async def close(self) -> None:
        """Stop trying, or close the bus."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._bus is not None:
            await self._bus.close()

    def is_there(self) -> bool:
        """Whether the bus is open."""
        return self._there.is_set()

    async def _try_on(self, trying: asyncio.Future[Bus]) -> None:
        pause_s, longest_s = _AGAIN_S
        while self._bus is None:
            if trying.done():
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, longest_s)
                trying = asyncio.ensure_future(self._open())
            try:
                self._bus = await trying
            except ConfigError as error:  # a person may still mend it; only what is shed is lost meanwhile
                self.counters.add("open-failed", "config")
                _log.error("the bus cannot be used: %s", error)
            except SdfError:
                self.counters.add("open-failed", "unavailable")
        _log.warning("the bus is there")
        self._there.set()


@asynccontextmanager
async def open_publisher(
    name: str, boot_id: str, *, hold: bool = True, kafka: KafkaConfig | None = None, compression: str = "zstd"
) -> AsyncIterator[OutputPublisher]:
    """Open the publisher `name`: ``link:PATH``, ``kafka://…`` (reached by `kafka`), or a folder for a recording.

    With `hold` a link's `publish` waits until the other end has the outputs, for a caller that stores them until then.
    `compression`: of records to Kafka, ``zstd`` or ``none``.
    """
    if name.startswith("link:"):
        from sdfstream.bus.link.client_io import LinkConfig, LinkPublisher

        path = name.removeprefix("link:")
        async with LinkPublisher(path, boot_id=boot_id, config=LinkConfig(hold=hold)) as link:
            yield link
    elif "://" in name:
        from sdfstream.bus.kafka.config import KafkaConfig
        from sdfstream.bus.open_io import open_bus

        packed = replace(kafka or KafkaConfig(), record_compression="zstd" if compression == "zstd" else None)
        waiting = WaitingBus(lambda: open_bus(name, time.time_ns, boot_id=boot_id, kafka=packed))
        try:
            await waiting.start()
            yield waiting
        finally:
            await waiting.close()
    elif not name.strip() or name == "memory":
        raise ConfigError("an agent's bus is link:PATH, kafka://HOST:PORT or a folder for a recording")
    else:
        from sdfstream.bus.recording.writer_io import RecordingWriter

        writer = RecordingWriter(name, time.time_ns, boot_id=boot_id)
        try:
            yield writer
        finally:
            await writer.close()
