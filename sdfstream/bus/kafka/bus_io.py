"""The bus on Kafka: topics, order per key, groups and replication are Kafka's; see `reader_io` for reading.

Producer: idempotent, acknowledged by all replicas; `publish` returns when the brokers have every message, so a full
or absent broker holds its caller back. ``bus_at_ns`` travels in a header, since Kafka's own time stamp has only
milliseconds; the reader holds it against the broker's stamp.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from sdfstream.bus import codec
from sdfstream.bus.kafka.admin_io import prepare
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.decoded import DecodedRecords
from sdfstream.bus.kafka.errors_io import RateLimit, mapped
from sdfstream.bus.kafka.producer_io import idempotent, send
from sdfstream.bus.kafka.reader_io import KafkaSubscription
from sdfstream.bus.kafka.share_io import share
from sdfstream.bus.kafka.steady_io import SteadyProducer, forget
from sdfstream.bus.kafka.task_io import KafkaTask
from sdfstream.bus.sequences import Numbers
from sdfstream.bus.task import Stop, Task, Work
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
        self.decoded = DecodedRecords()
        self.cluster_id = ""
        """The id that the cluster gave itself, known once started: another one numbers its messages afresh."""
        self._boot_id = boot_id
        self._numbers = Numbers()
        self._steady = SteadyProducer(lambda: idempotent(config), self.counters)
        self._started = False
        self._readers: list[KafkaSubscription] = []
        self._tasks: list[KafkaTask] = []
        self._at_ns = 0

    async def start(self) -> None:
        """Create and check topics, and connect.

        Raises
        ------
        UnavailableError, ConfigError
            As `admin_io.prepare`.
        """
        RateLimit.install()
        self.cluster_id = await prepare(self.config)
        await self._steady.get()
        self._started = True

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Send `outputs` and wait until the brokers have them."""
        producer = await self._open_producer()
        waiting: list[asyncio.Future[Any]] = []
        try:
            for output in outputs:
                codec.check(output)  # before a number is given out, lest a refusal look like a gap
                number = output.batch_seq if output.boot_id else self._numbers.take(output.topic, output.key)
                headers, value = codec.encode(
                    output, self._boot_id, number, bus_at_ns=self.now_ns(), compression=self.config.compression
                )
                waiting.append(await send(self, producer, output.topic, output.key, headers, value))
        except asyncio.CancelledError:
            forget(waiting)  # lest a caller that gave up wait for brokers that are away
            raise
        except Exception as error:
            self._steady.not_sent(producer, error)
            await self._steady.settle(producer, waiting)
            raise
        await self._steady.settle(producer, waiting)
        for output in outputs:
            self.counters.add("published", output.topic)

    async def publish_bytes(self, topic: str, key: str, headers: Iterable[tuple[str, bytes]], value: bytes) -> None:
        """Send a message in wire form as it is; its reader decodes or refuses it."""
        producer = await self._open_producer()
        try:
            codec.topic_of(topic)
            given = [(name, raw) for name, raw in headers if name != "bus_at_ns"]
            given.append(("bus_at_ns", b"%d" % self.now_ns()))
            sent = await send(self, producer, topic, key, given, value)
        except FormatError as error:
            if error.reason != "oversize":  # that one is counted already
                self.counters.add("refused", error.reason)
            return
        except Exception as error:
            self._steady.not_sent(producer, error)
            raise
        await self._steady.settle(producer, [sent])
        self.counters.add("published", topic)

    async def subscribe(
        self, group: str, topics: Sequence[str], *, from_start: bool = False, slice_ns: int = 0
    ) -> KafkaSubscription:
        """Join `group`; see `sdfstream.bus.Bus.subscribe`. What a fetch brings is given out at once."""
        self._check_open()
        for topic in topics:
            codec.topic_of(topic)
        reader = KafkaSubscription(self, group, tuple(topics))
        await reader.start(from_start=from_start)
        self._readers.append(reader)
        return reader

    async def partitions(self, topic: str) -> int:
        """Number of partitions of `topic`."""
        return len(await self.partitions_of(self.config.prefix + topic))

    async def task(self, work: Work, unit: int = 0) -> KafkaTask:
        """Take a unit of `work` into this caller's hands; see `sdfstream.bus.Bus.task`."""
        self._check_open()
        task = await KafkaTask.open(self, work, unit)
        self._tasks = [t for t in self._tasks if not t.closed] + [task]
        return task

    async def shared(self, work: Work, run: Callable[[Task], Awaitable[None]], stop: Stop, *, member: str = "") -> None:
        """Run `run` for every unit of `work` that is ours; see `sdfstream.bus.Bus.shared`."""
        self._check_open()
        await share(self, work, run, stop, member)

    async def close(self) -> None:
        """Send what is in flight, leave all groups, disconnect."""
        self._started = False
        for task in self._tasks:
            await task.close()
        for reader in self._readers:
            await reader.close()
        await self._steady.close()

    async def ask(self) -> None:
        """Return once a broker has answered.

        Raises
        ------
        BusError, UnavailableError
            None does.
        """
        with mapped("asking for the brokers"):
            producer = await self._open_producer()
            await producer.client.fetch_all_metadata()

    async def partitions_of(self, name: str) -> list[int]:
        """The partitions of the brokers' topic `name`."""
        producer = await self._open_producer()
        return sorted(await producer.partitions_for(name))

    def now_ns(self) -> int:
        """The bus's clock as this client sees it; never goes back."""
        self._at_ns = max(self._at_ns, self.clock())
        return self._at_ns

    def _check_open(self) -> None:
        if not self._started:
            raise BusError("the bus is closed")

    async def _open_producer(self) -> Any:
        self._check_open()
        return await self._steady.get()
