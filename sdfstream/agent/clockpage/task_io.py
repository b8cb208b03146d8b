"""The clock pages of an agent's hosts: rows of the bus in, pages in shared memory out (`sdfstream.clock`).

Beside a link they come over a connection of their own, so that rows and commands never wait for each other. Every
failure is logged and counted, and probing goes on: a reader sees its page grow old.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

from sdfstream.agent.clockpage.writer_io import PageWriter
from sdfstream.agent.downlink import Downlink
from sdfstream.agent.downlink_io import downlink_from
from sdfstream.bus import Bus
from sdfstream.bus.link.client_io import LinkPublisher
from sdfstream.bus.tail_io import Tail
from sdfstream.errors import BusError, FormatError, UnavailableError
from sdfstream.probes.config import AgentConfig
from sdfstream.probes.virtual_clock import Clock
from sdfstream.records.topics import CLOCK
from sdfstream.stats import HasCounters

_log = logging.getLogger("sdfstream.clock")


@asynccontextmanager
async def clock_pages(
    config: AgentConfig,
    names: Sequence[str],
    publishers: Sequence[object],
    boot_id: str,
    counted: list[HasCounters] | None = None,
) -> AsyncIterator[Callable[[], Mapping[str, int]]]:
    """Write the pages while the block runs; gives their counters.

    Parameters
    ----------
    config : AgentConfig
    names : sequence of str
        Names of the publishers, as the agent was given them.
    publishers : sequence of object
        Opened from them; a Kafka client among them is read from.
    boot_id : str
        Names this run of the agent.
    counted : list, optional
        Gets the writer of the pages, whose troubles are the agent's.
    """
    async with AsyncExitStack() as stack:
        writer = None
        if config.clock_pages != "off":
            try:
                downlink = await _downlink(stack, names, publishers, boot_id)
                writer = _writer(config, boot_id) if downlink is not None else None
            except (UnavailableError, BusError, FormatError) as error:
                _log.warning("no clock pages: %s", error)
        if writer is None or downlink is None:
            yield dict
            return
        stack.callback(writer.close)
        if counted is not None:
            counted.append(writer)
        work = asyncio.create_task(writer.run(downlink), name="clock-pages")
        work.add_done_callback(_log_end)
        try:
            yield writer.counters.as_dict
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)


def _writer(config: AgentConfig, boot_id: str) -> PageWriter:
    clocks = {h.host: Clock(h.virtual_clock).at if h.virtual_clock is not None else None for h in config.hosts}
    return PageWriter(clocks, None if config.clock_pages == "auto" else Path(config.clock_pages), boot_id)


async def _downlink(
    stack: AsyncExitStack, names: Sequence[str], publishers: Sequence[object], boot_id: str
) -> Downlink | None:
    """Where clock rows come from; None: the agent only publishes."""
    for name, publisher in zip(names, publishers, strict=False):
        if name.startswith("link:"):
            link = await stack.enter_async_context(LinkPublisher(name.removeprefix("link:"), boot_id=boot_id))
            link.subscribe([CLOCK.name])
            return link
        if hasattr(publisher, "subscribe"):
            follow = partial(Tail.open, cast(Bus, publisher), f"agent-clock-{boot_id}", [CLOCK.name])
            return await downlink_from(publisher, follow)
    return None


def _log_end(work: asyncio.Task[None]) -> None:
    """A defect of ours ends the pages, not the probing."""
    if not work.cancelled() and work.exception() is not None:
        _log.error("clock pages ended; they grow old now", exc_info=work.exception())
