"""A consumer that has read all there is does not stand still, whatever a transaction's end takes of the offsets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.reader_io import KafkaSubscription
from sdfstream.records.topics import CLOCK
from sdfstream.stats import Counters

PARTITION = TopicPartition(CLOCK.name, 0)


class Consumer:
    """Stands at `position`; the brokers' end is 12, of which the last is the end of a transaction."""

    def __init__(self, position: int) -> None:
        self._position = position

    async def getmany(self, **_: Any) -> dict[Any, Any]:
        return {}

    async def end_offsets(self, partitions: list[Any]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 12)

    async def position(self, partition: Any) -> int:
        return self._position

    def assignment(self) -> set[Any]:
        return {PARTITION}

    async def stop(self) -> None:
        """Nothing to stop."""


@pytest.mark.parametrize(("position", "restarts"), [(12, 0), (11, 1)])
async def test_the_end_of_a_transaction_is_no_record_to_wait_for(
    position: int, restarts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: Any = SimpleNamespace(counters=Counters("bus"), config=KafkaConfig(stall_s=0.001))
    reader = KafkaSubscription(client, "g", (CLOCK.name,))
    reader._consumer = Consumer(position)
    reader._next = {PARTITION: 11}

    async def join() -> Any:
        return Consumer(position)

    monkeypatch.setattr(reader, "_join", join)
    assert await reader.read(timeout_s=0) == []
    assert client.counters.get("consumer-restarted", "g") == restarts
