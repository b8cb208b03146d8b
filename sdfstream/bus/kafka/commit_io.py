"""A task's commits: each is one Kafka transaction of outputs, notes and positions; the last one is read back.

The transactional id is the task's name, so a task that was opened elsewhere since has fenced this producer, and
everything in a commit (outputs, dead letters, positions, notes) becomes visible at once or never.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sdfstream.bus import codec
from sdfstream.bus.kafka import notes
from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.partitions_io import LOG_APPEND_TIME
from sdfstream.bus.kafka.producer_io import send
from sdfstream.bus.sequences import Numbers
from sdfstream.bus.task import Work
from sdfstream.records.message import Output
from sdfstream.records.position import Positions
from sdfstream.records.units import NS_PER_MS

_POLL_MS: Final = 200


def task_name(work: Work, unit: int) -> str:
    """Name of a unit of work: in transactional ids and in the keys of its notes."""
    return f"{work.name}/{unit}of{work.units}"


async def read_notes(consumer: Any, partition: Any, name: str) -> notes.NoteReader:
    """The notes of task `name`, whose former owner is fenced.

    Another task's open transaction may hide the end of the partition for a while; the call waits until every record
    that was there at its start is readable or aborted.

    Parameters
    ----------
    consumer : AIOKafkaConsumer
        Started, with the stage's group; afterwards it must be assigned anew.
    partition : TopicPartition
        Of the checkpoint topic.
    """
    consumer.assign([partition])
    reader = notes.NoteReader(name)
    known = await consumer.committed(partition)
    oldest = (await consumer.beginning_offsets([partition]))[partition]
    consumer.seek(partition, max(oldest, known or 0))
    end = None
    while end is None or await consumer.position(partition) < end:
        for records in (await consumer.getmany(partition, timeout_ms=_POLL_MS)).values():
            for record in records:
                reader.feed(record.offset, record.key, record.headers, record.value)
        if end is None:
            end = consumer.highwater(partition)
    return reader


class Encoded(NamedTuple):
    """An output in wire form."""

    topic: str
    key: str
    headers: codec.Headers
    value: bytes


class CommitWriter:
    """Writes the commits of one task.

    Parameters
    ----------
    bus : KafkaClient
    task : str
        Names the task in the keys of its notes.
    producer : AIOKafkaProducer
        Transactional, under the task's name.
    checkpoint : TopicPartition
        Of the checkpoint topic, where the task's notes are.
    number : int
        Number of the next commit.
    begin_offset : int or None
        Offset of the task's last ``@begin`` record.
    """

    def __init__(
        self, bus: KafkaClient, task: str, producer: Any, checkpoint: Any, number: int, begin_offset: int | None
    ) -> None:
        self.checkpoint = checkpoint
        self.begin_offset = begin_offset
        self._bus = bus
        self._task = task
        self._producer = producer
        self._number = number
        self._numbers = Numbers()
        self._boot_id = uuid.uuid4().hex

    def encode(self, outputs: Sequence[Output]) -> list[Encoded]:
        """All of `outputs` in wire form; errors as `codec.check`, before anything is sent."""
        for output in outputs:
            codec.check(output)
        at_ns = self._bus.now_ns()
        encoded = []
        for output in outputs:
            number = self._numbers.take(output.topic, output.key)
            compression = self._bus.config.compression
            headers, value = codec.encode(output, self._boot_id, number, bus_at_ns=at_ns, compression=compression)
            encoded.append(Encoded(output.topic, output.key, headers, value))
        return encoded

    async def write(
        self,
        outputs: Sequence[Encoded],
        positions: Positions,
        changed: Mapping[str, bytes | None],
        mark: notes.Mark | None,
    ) -> int:
        """Commit; returns the brokers' time at it, ns since the Unix epoch.

        Raises
        ------
        BusError
            Nothing was committed, or it is not known.
        """
        producer = self._producer
        with mapped(f"committing {self._task}"):
            await producer.begin_transaction()
            waiting = []
            try:
                for topic, key, headers, value in outputs:
                    waiting.append(await send(self._bus, producer, topic, key, headers, value))
                for record in notes.records(self._task, positions, changed, mark, self._number):
                    sent = await self._send_note(record)
                    waiting.append(sent)
            finally:
                ended = await asyncio.gather(*waiting, return_exceptions=True)
            failed = next((e for e in ended if isinstance(e, BaseException)), None)
            if failed is not None:
                raise failed
            async with asyncio.timeout(self._bus.config.request_timeout_ms / 1000):
                await producer.commit_transaction()
        self._number += 1
        stored: Any = ended[-1]
        by_broker = stored.timestamp_type == LOG_APPEND_TIME and stored.timestamp is not None
        return int(stored.timestamp) * NS_PER_MS if by_broker else self._bus.clock()

    async def _send_note(self, record: notes.NoteRecord) -> asyncio.Future[Any]:
        sent: asyncio.Future[Any] = await self._producer.send(
            self.checkpoint.topic,
            record.value,
            key=record.key.encode(),
            headers=record.headers,
            partition=self.checkpoint.partition,
        )
        if record.key == f"{self._task}|{notes.BEGIN}|0":
            sent.add_done_callback(self._begun)
        return sent

    def _begun(self, sent: asyncio.Future[Any]) -> None:
        if not sent.cancelled() and sent.exception() is None:
            self.begin_offset = sent.result().offset
