"""What the readers, tasks and senders of one process need of its Kafka client; `bus_io.KafkaBus` is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.decoded import DecodedRecords
from sdfstream.records.message import Output
from sdfstream.stats import Counters


class KafkaClient(Protocol):
    """A connected client of a Kafka cluster."""

    config: KafkaConfig
    counters: Counters
    clock: Callable[[], int]
    """ns since the Unix epoch; may go back."""
    decoded: DecodedRecords

    def now_ns(self) -> int:
        """Bus time by `clock`, ns since the Unix epoch; never goes back."""

    async def partitions_of(self, name: str) -> list[int]:
        """The partitions of the brokers' topic `name` (with the prefix)."""

    async def publish(self, outputs: Sequence[Output]) -> None:
        """See `sdfstream.bus.Bus.publish`."""
