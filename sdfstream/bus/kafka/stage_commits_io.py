"""When each task of a stage last committed, by the records of the checkpoint topic: how far others' stages have come.

A stage that has messages commits at least once a second; each commit writes a record under ``<task>|…``. Its time says
up to when the stage has read the bus, for a process that does none of that stage's work.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import stop
from sdfstream.bus.kafka.security_io import client_settings
from sdfstream.records.topics import CHECKPOINT

NS_PER_MS: Final = 1_000_000


class StageCommits:
    """Follows the checkpoint topic from its end on, without a group."""

    def __init__(self, bus: KafkaBus) -> None:
        self._bus = bus
        self._consumer: Any = None
        self._at_ns: dict[str, int] = {}
        """Task → time of its last record."""

    async def start(self) -> None:
        """Begin at the end; errors as `mapped`."""
        topic = self._bus.config.prefix + CHECKPOINT.name
        with mapped("following checkpoints"):
            partitions = [TopicPartition(topic, p) for p in await self._bus.partitions_of(topic)]
            self._consumer = AIOKafkaConsumer(
                **client_settings(self._bus.config), group_id=None, enable_auto_commit=False,
                auto_offset_reset="latest", isolation_level="read_committed",
            )  # fmt: skip
            self._consumer.assign(partitions)
            await self._consumer.start()
            await self._consumer.seek_to_end(*partitions)

    async def read(self, timeout_ms: int) -> None:
        """Take what was committed since; waits so long at most for the first of it."""
        with mapped("following checkpoints"):
            found = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=1000)
        for records in found.values():
            for record in records:
                task = (record.key or b"").decode("utf-8", "replace").partition("|")[0]
                self._at_ns[task] = max(self._at_ns.get(task, 0), record.timestamp * NS_PER_MS)

    def reached_at_ns(self) -> dict[str, int]:
        """Task → time of its last commit."""
        return dict(self._at_ns)

    async def close(self) -> None:
        """Disconnect."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            with suppress(KafkaError):
                await stop(consumer)
