"""Reads the notes of a task's last commit from the checkpoint topic."""

from __future__ import annotations

from typing import Any, Final

from sdfstream.bus.kafka.notes import NoteReader
from sdfstream.bus.task import Work

_POLL_MS: Final = 200


def task_name(work: Work, unit: int) -> str:
    """Name of a unit of work: in transactional ids and in the keys of its notes."""
    return f"{work.name}/{unit}of{work.units}"


async def read_notes(consumer: Any, partition: Any, name: str) -> NoteReader:
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
    reader = NoteReader(name)
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
