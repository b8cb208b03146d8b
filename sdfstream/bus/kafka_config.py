"""What a user may set about Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sdfstream.bus.codec import Compression
from sdfstream.errors import ConfigError

RecordCompression: TypeAlias = Literal["zstd"] | None

SLACK_BYTES: Final = 64 << 10
"""Room for key, headers and the record batch's own bytes around a message of ``max_message_bytes``."""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Where the brokers are, and the sizes that producer, topics and consumers must agree on."""

    servers: str = "127.0.0.1:9092"
    """``host:port``, several separated by commas."""
    prefix: str = ""
    """Put before every topic's and group's name on the brokers, where a cluster is shared."""
    max_message_bytes: int = 8 << 20
    """The largest message. One setting for producer, topics and consumers: a producer's limit above a topic's fails
    the send, and a consumer's below it waits forever."""
    partitions: int = 1
    """Of topics that `start` creates. Messages of one key keep their order; above 1 nothing else does."""
    replication: int = 1
    create_topics: bool = True
    """Create absent topics at start; without the right to, set it to false and create them by other means."""
    linger_ms: int = 2
    """How long the producer gathers small messages before it sends."""
    compression: Compression = None
    """Of the Arrow buffers inside a message. Where `record_compression` is possible it is cheaper and smaller."""
    record_compression: RecordCompression = None
    """Of whole record batches, by Kafka's client: an agent's 144 rows shrink from 147 to 43 bytes a row for half a
    microsecond each; buffers compressed one by one (`compression`) give 87 bytes for four."""
    request_timeout_ms: int = 40_000
    """After this the producer gives a message up and `publish` raises."""
    stall_s: float = 15.0
    """A consumer that got nothing for so long although the topic went on is restarted."""

    def check(self) -> None:
        """Raise `ConfigError` with the path of the key that is wrong."""
        if self.max_message_bytes < 64 << 10 or self.max_message_bytes > 64 << 20:
            raise ConfigError(f"bus.kafka.max_message_bytes is {self.max_message_bytes}; it must be 64 KiB to 64 MiB")
        if self.partitions < 1 or self.replication < 1:
            raise ConfigError("bus.kafka.partitions and bus.kafka.replication must be at least 1")
        if self.stall_s <= 0 or self.linger_ms < 0 or self.request_timeout_ms <= 0:
            raise ConfigError("bus.kafka.stall_s, linger_ms and request_timeout_ms must be positive")
