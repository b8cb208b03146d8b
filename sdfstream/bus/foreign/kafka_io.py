"""A topic that is not ours: raw values of its records, read by a group whose positions its reader commits itself.

Positions are committed by what the reader has dealt with, not by what it was given, so that a record comes again until
then (at least once). After a rebalance reading goes on at the last commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from aiokafka import ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError

from sdfstream.bus.kafka import unreadable_io
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.errors_io import RateLimit, mapped
from sdfstream.bus.kafka.groups_io import commit_first_positions, make_consumer, stop
from sdfstream.errors import BusError, ConfigError
from sdfstream.stats import Counters

_COMMIT_S: Final = 10.0
"""A commit that a rebalance holds up for longer is given up; the next one covers it."""


class ForeignRecord(NamedTuple):
    """One record."""

    partition: int
    offset: int
    value: bytes
    """Empty: the record has none, or the client cannot read it."""


class ForeignTopic:
    """A member of `group` (named with the prefix of ours) that reads `topic` (named without).

    Parameters
    ----------
    config : KafkaConfig
        The brokers, and how to get in.
    lost : callable
        Takes the partitions that are another member's from now on, or ours anew.

    Notes
    -----
    Counters: ``commit-failed`` (positions of partitions that have gone), ``unreadable``.
    """

    def __init__(
        self, config: KafkaConfig, topic: str, group: str, lost: Callable[[set[int]], None], counters: Counters
    ) -> None:
        self._config, self._topic, self._group = config, topic, group
        self._lost = lost
        self._counters = counters
        self._consumer: Any = None

    async def start(self, *, from_start: bool) -> None:
        """Join the group; one without positions begins with the newest record, or with the oldest.

        Raises
        ------
        ConfigError
            The brokers have no such topic, or do not show it to this user.
        UnavailableError
            No broker answers.
        """
        RateLimit.install()
        with mapped(f"joining group {self._group}"):
            self._consumer = consumer = make_consumer(self._config, self._group)
            try:
                await consumer.start()
                cluster = await consumer._client.fetch_all_metadata()  # what `topics` keeps the names of alone
                partitions = cluster.partitions_for_topic(self._topic)
                if not partitions:
                    raise ConfigError(
                        f"the brokers have no topic '{self._topic}', or this user may not read it: start gnmic with "
                        f"that topic, or create it (kafka-topics.sh --create --topic {self._topic})"
                    )
                found = [TopicPartition(self._topic, p) for p in sorted(partitions)]
                await commit_first_positions(self._config, self._group, found, from_start=from_start)
                consumer.subscribe([self._topic], listener=_Leaving(self._lost))
            except BaseException:
                await self.close()
                raise

    async def read(self, most: int, timeout_s: float) -> list[ForeignRecord]:
        """Records in order within a partition; empty when none came in time."""
        with mapped(f"reading {self._topic}"):
            found = await self._consumer.getmany(timeout_ms=max(0, round(timeout_s * 1000)), max_records=most)
        return [self._record(record) for records in found.values() for record in records]

    async def commit(self, positions: Mapping[int, int]) -> None:
        """Commit the first record that is still needed, by partition; those that are not ours now are left out."""
        ours = self._consumer.assignment()
        named = {TopicPartition(self._topic, partition): offset for partition, offset in positions.items()}
        done = {partition: offset for partition, offset in named.items() if partition in ours}
        if not done:
            return
        try:
            with mapped("committing"):
                async with asyncio.timeout(_COMMIT_S):
                    await self._consumer.commit(done)
        except TimeoutError:
            self._counters.add("commit-failed")
        except BusError as error:
            if not isinstance(error.__cause__, CommitFailedError | IllegalStateError):
                raise
            self._counters.add("commit-failed")

    async def lag(self) -> int:
        """Records behind this member's positions, by the brokers' last answers."""
        lag = 0
        for partition in self._consumer.assignment():
            end = self._consumer.highwater(partition)
            with suppress(IllegalStateError):  # it has just gone
                if end is not None:
                    lag += max(0, end - await self._consumer.position(partition))
        return lag

    async def close(self) -> None:
        """Leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop(consumer)

    def _record(self, record: Any) -> ForeignRecord:
        value = record.value or b""
        if isinstance(value, unreadable_io.Unreadable):
            self._counters.add("unreadable")
            value = b""
        return ForeignRecord(record.partition, record.offset, value)


class _Leaving(ConsumerRebalanceListener):  # type: ignore[misc]
    """Says which partitions go: reading of those that stay goes on at the last commit, too."""

    def __init__(self, lost: Callable[[set[int]], None]) -> None:
        self._lost = lost

    async def on_partitions_revoked(self, revoked: set[Any]) -> None:
        """All that we had."""
        self._lost({partition.partition for partition in revoked})

    async def on_partitions_assigned(self, assigned: set[Any]) -> None:
        """Nothing: the client begins at the commit."""
