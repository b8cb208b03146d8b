"""Around the members of a consumer group: its first position, and positions that survive rebalances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import CommitFailedError, KafkaError

from sdfstream.bus.kafka import unreadable_io
from sdfstream.bus.kafka.config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka.security_io import client_settings
from sdfstream.bus.sequences import SequenceWatch

STOP_S: Final = 5.0
FETCH_WAIT_MS: Final = 100
"""A fetch that finds nothing is answered after this long, the age of a reader's knowledge of an idle topic."""


def make_consumer(config: KafkaConfig, group: str | None, *, reset: str = "earliest", **settings: Any) -> Any:
    """A member-to-be of `group` (None: of none) that commits nothing by itself and takes messages of our largest size.

    It sees nothing of transactions that are open or were given up. A record that the client cannot read comes as one
    that `unreadable_io.check` refuses.
    """
    unreadable_io.install()
    return AIOKafkaConsumer(
        **client_settings(config),
        group_id=None if group is None else config.prefix + group,
        enable_auto_commit=False,
        auto_offset_reset=reset,
        isolation_level="read_committed",
        max_partition_fetch_bytes=config.max_message_bytes + 2 * SLACK_BYTES,
        fetch_max_bytes=config.max_message_bytes + 2 * SLACK_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
        request_timeout_ms=config.request_timeout_ms,
        **settings,
    )


async def commit_first_positions(
    config: KafkaConfig, group: str, partitions: Sequence[Any], *, from_start: bool
) -> None:
    """Commit the group's first position in `partitions`, so that it holds even if no member ever commits.

    The commit of a non-member is refused while the group has members; then the group has positions already, and reads
    a topic new to it from its beginning.
    """
    consumer = make_consumer(config, group)
    try:
        consumer.assign(partitions)
        await consumer.start()
        new = [p for p in partitions if await consumer.committed(p) is None]
        if new:
            ends = await (consumer.beginning_offsets(new) if from_start else consumer.end_offsets(new))
            with suppress(CommitFailedError):
                await consumer.commit(ends)
    finally:
        await stop(consumer)


class Rebalance(ConsumerRebalanceListener):  # type: ignore[misc]
    """Keeps a member's positions right when partitions come and go.

    After every rebalance the client starts from the last commit. A partition that stayed goes on where it was instead
    (nobody else can have read it); one that changed hands is forgotten.
    """

    def __init__(self, consumer: Any, watch: SequenceWatch, positions: dict[Any, int]) -> None:
        self._consumer = consumer
        self._watch = watch
        self._next = positions

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """Nothing: most partitions usually come back."""

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        """Seek in partitions that stayed, forget those that went; new ones start at the group's commit."""
        stayed = self._next.keys() & assigned
        if stayed != assigned or stayed != self._next.keys():
            self._watch.forget()
        for partition in self._next.keys() - stayed:
            del self._next[partition]
        for partition in stayed:
            self._consumer.seek(partition, self._next[partition])


async def stop(client: Any) -> None:
    """Stop a consumer or a producer, which may be the very one that hangs or was fenced."""
    with suppress(TimeoutError, KafkaError):
        async with asyncio.timeout(STOP_S):
            await client.stop()
