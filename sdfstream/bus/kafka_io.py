"""The bus on Kafka: topics, order per key, groups and replication are Kafka's; see `kafka_reader_io` for reading.

Producer: idempotent, acknowledged by all replicas; `publish` returns when the brokers have every message, so a full
or absent broker holds its caller back. ``bus_at_ns`` travels in a header, since Kafka's own time stamp has only
milliseconds; the reader holds it against the broker's stamp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from aiokafka import AIOKafkaProducer

from sdfstream.bus import codec
from sdfstream.bus.kafka_admin_io import prepare
from sdfstream.bus.kafka_config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka_errors_io import RateLimit, mapped
from sdfstream.bus.kafka_reader_io import KafkaSubscription
from sdfstream.bus.sequences import Numbers
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Output
from sdfstream.stats import Counters


class KafkaBus:
    """A client of a Kafka cluster.

    Parameters
    ----------
    config : KafkaConfig
    clock : callable
        The bus's clock, ns since the Unix epoch.
    boot_id : str
        Names this run; written to messages whose producer did not bring its own.
    """

    def __init__(self, config: KafkaConfig, clock: Callable[[], int], *, boot_id: str) -> None:
        config.check()
        self.counters = Counters("bus")
        self.config = config
        self.clock = clock
        self.cluster_id = ""
        """The id that the cluster gave itself, known once started: another one numbers its messages afresh."""
        self._boot_id = boot_id
        self._numbers = Numbers()
        self._producer: Any = None
        self._readers: list[KafkaSubscription] = []
        self._at_ns = 0

    async def start(self) -> None:
        """Create and check topics, and connect.

        Raises
        ------
        UnavailableError, ConfigError
            As `kafka_admin_io.prepare`.
        """
        RateLimit.install()
        self.cluster_id = await prepare(self.config)
        producer = AIOKafkaProducer(
            bootstrap_servers=self.config.servers,
            enable_idempotence=True,
            acks="all",
            linger_ms=self.config.linger_ms,
            max_request_size=self.config.max_message_bytes + 2 * SLACK_BYTES,
            max_batch_size=self.config.max_message_bytes,
            request_timeout_ms=self.config.request_timeout_ms,
        )
        try:
            with mapped("connecting the producer"):
                await producer.start()
        except BaseException:
            await producer.stop()
            raise
        self._producer = producer

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Send `outputs` and wait until the brokers have them."""
        producer = self._open_producer()
        waiting = []
        try:
            for output in outputs:
                codec.check(output)  # before a number is given out, lest a refusal look like a gap
                number = self._numbers.take(output.topic, output.key)
                headers, value = codec.encode(
                    output, self._boot_id, number, bus_at_ns=self._now(), compression=self.config.compression
                )
                waiting.append(await self._send(producer, output.topic, output.key, headers, value))
        finally:
            failed = [e for e in await asyncio.gather(*waiting, return_exceptions=True) if isinstance(e, Exception)]
            self.counters.add("publish-failed", n=len(failed))
        if failed:
            with mapped("publishing"):
                raise failed[0]
        for output in outputs:
            self.counters.add("published", output.topic)

    async def publish_bytes(self, topic: str, key: str, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        """Send a message in wire form as it is; whoever reads it judges it."""
        producer = self._open_producer()
        try:
            codec.topic_of(topic)
            given = [(name, raw) for name, raw in headers if name != "bus_at_ns"]
            given.append(("bus_at_ns", b"%d" % self._now()))
            sent = await self._send(producer, topic, key, given, value)
        except FormatError as error:
            if error.reason != "oversize":  # that one is counted already
                self.counters.add("refused", error.reason)
            return
        with mapped("publishing"):
            await sent
        self.counters.add("published", topic)

    async def subscribe(self, group: str, topics: Sequence[str], *, from_start: bool = False) -> KafkaSubscription:
        """Join `group`; see `sdfstream.bus.Bus.subscribe`."""
        self._open_producer()
        for topic in topics:
            codec.topic_of(topic)
        reader = KafkaSubscription(self, group, tuple(topics))
        await reader.start(from_start=from_start)
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        """Send what is under way, leave all groups, disconnect."""
        producer, self._producer = self._producer, None
        for reader in self._readers:
            await reader.close()
        if producer is not None:
            with mapped("closing the producer"):
                await producer.stop()

    async def ask(self) -> None:
        """Return once a broker has answered.

        Raises
        ------
        BusError, UnavailableError
            None does.
        """
        with mapped("asking for the brokers"):
            await self._open_producer().client.fetch_all_metadata()

    async def partitions_of(self, name: str) -> list[int]:
        """The partitions of the brokers' topic `name`."""
        return sorted(await self._open_producer().partitions_for(name))

    def _now(self) -> int:
        self._at_ns = max(self._at_ns, self.clock())
        return self._at_ns

    async def _send(
        self, producer: Any, topic: str, key: str, headers: codec.Headers, value: bytes
    ) -> asyncio.Future[Any]:
        """Hand one record to the producer; its future must be awaited, since it alone tells of a failure."""
        if len(value) > self.config.max_message_bytes:
            self.counters.add("refused", "oversize")
            limit = self.config.max_message_bytes
            raise FormatError("oversize", f"{len(value)} bytes for {topic}, more than max_message_bytes {limit}")
        with mapped("publishing"):
            name = self.config.prefix + topic
            future: asyncio.Future[Any] = await producer.send(name, value, key=key.encode(), headers=headers)
        return future

    def _open_producer(self) -> Any:
        if self._producer is None:
            raise BusError("the bus is closed")
        return self._producer
