"""Where a client reads topics: a recording on disk, or a Kafka bus."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.open_io import kafka_at
from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.client.choice import Choice
from sdfstream.records.message import Message
from sdfstream.records.topics import ARCHIVED
from sdfstream.stats import Counters

SUBFOLDER: Final = "recording"
"""Of a data folder, where ``sdfstream up`` and ``demo`` put what they record."""


class Topics(Protocol):
    """Topics that can be read from their beginning."""

    def names(self) -> tuple[str, ...]:
        """Topics that may hold something, sorted."""

    def messages(self, topic: str, choice: Choice) -> Iterator[Message]:
        """Those of `topic` within the span of `choice`, and perhaps some beside it."""

    def counters(self) -> Counters:
        """What the last reading refused, by reason."""


class RecordedTopics:
    """The topics of a recording."""

    def __init__(self, folder: Path) -> None:
        self._recording = open_recording(folder)

    def names(self) -> tuple[str, ...]:
        """Topics with a file."""
        return self._recording.topics

    def messages(self, topic: str, choice: Choice) -> Iterator[Message]:
        """All of `topic`, up to the end of the span."""
        for message in self._recording.messages({topic}):
            if choice.until_ns is not None and message.bus_at_ns >= choice.until_ns:
                return
            yield message

    def counters(self) -> Counters:
        """What the recording refused in its last pass."""
        return self._recording.counters


class KafkaTopics:
    """The topics of a Kafka bus, read without a group: nobody else's positions move."""

    def __init__(self, bus: str, kafka: KafkaConfig | None = None) -> None:
        self._config = replace(kafka_at(bus, kafka or KafkaConfig()), create_topics=False)
        self._counters = Counters("bus")

    def names(self) -> tuple[str, ...]:
        """Every topic that is archived."""
        return tuple(sorted(ARCHIVED))

    def messages(self, topic: str, choice: Choice) -> Iterator[Message]:
        """Those of `topic` within the span, as long as the brokers retain them."""
        return _blocking(self._read(topic, choice))

    def counters(self) -> Counters:
        """What the last reading could not decode."""
        return self._counters

    async def _read(self, topic: str, choice: Choice) -> AsyncIterator[list[Message]]:
        from sdfstream.bus.kafka.bus_io import KafkaBus
        from sdfstream.bus.kafka.span_io import read_span

        bus = KafkaBus(self._config, time.time_ns, boot_id=uuid.uuid4().hex)
        self._counters = bus.counters
        try:
            await bus.start()
            async for messages in read_span(bus, topic, choice.since_ns, choice.until_ns):
                yield messages
        finally:
            await bus.close()


def topics_of(data: Path, recording: Path | None, bus: str | None, kafka: KafkaConfig | None) -> Topics:
    """The bus if one is named, else the recording, else what is recorded in the data folder.

    Raises
    ------
    ConfigError
        There is none; or as `kafka_at`.
    """
    if bus is not None:
        return KafkaTopics(bus, kafka)
    inner = data / SUBFOLDER
    return RecordedTopics(recording or (inner if inner.is_dir() else data))


def _blocking(batches: AsyncIterator[list[Message]]) -> Iterator[Message]:
    """`batches` for callers without an event loop, or, as in a notebook, inside somebody else's."""
    with ThreadPoolExecutor(1, "topics") as pool:
        loop = asyncio.new_event_loop()

        async def following() -> list[Message] | None:
            return await anext(batches, None)

        async def end() -> None:
            with suppress(Exception):
                await batches.aclose()  # type: ignore[attr-defined]

        try:
            while (messages := pool.submit(loop.run_until_complete, following()).result()) is not None:
                yield from messages
        finally:
            pool.submit(loop.run_until_complete, end()).result()
            loop.close()
