"""What a topic holds between two instants, read once and without a group: for exports and for people who look back.

Where to begin and end is asked of the brokers before the first read, so that a topic that is written all the while has
an end. What cannot be decoded is counted, and left to the topic's regular readers to set aside.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import make_consumer, stop
from sdfstream.bus.kafka.times import MAX_EARLY_NS, MAX_LATE_NS, entered_at_ns
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Message
from sdfstream.records.position import PARTITION_BITS
from sdfstream.records.units import NS_PER_MS

LOG_APPEND_TIME: Final = 1
_WAIT_MS: Final = 500
_MOST_EMPTY: Final = 60
"""Reads in a row that bring nothing while the brokers have more: after half a minute the reader gives up."""


async def read_span(
    bus: KafkaBus, topic: str, since_ns: int | None = None, until_ns: int | None = None
) -> AsyncIterator[list[Message]]:
    """Messages of `topic` that entered the bus from `since_ns` to before `until_ns` (None: from the first, to the last
    of now); in order within a partition.

    Notes
    -----
    Counters of the bus: ``refused`` (reason), ``lost`` (``span:topic``: what retention removed while it was read).

    Raises
    ------
    BusError
        The brokers have more and do not give it.
    """
    name = bus.config.prefix + topic
    doing = f"reading {topic}"
    consumer = make_consumer(bus.config, None)
    try:
        with mapped(doing):
            partitions = [TopicPartition(name, p) for p in await bus.partitions_of(name)]
            consumer.assign(partitions)
            await consumer.start()
            ends = await _ends(consumer, partitions, until_ns)
            await _seek(consumer, partitions, since_ns)
        floors_ns: dict[Any, int] = {}
        empty = 0
        while await _is_before(consumer, ends):
            with mapped(doing):
                found = await _fetch(consumer, bus, topic)
            empty = 0 if found else empty + 1
            if empty == _MOST_EMPTY:
                raise BusError(f"Kafka, {doing}: the brokers have more than they give")
            messages = [
                message
                for partition, records in found.items()
                for record in records
                if record.offset < ends[partition] and (message := _message(bus, topic, record, floors_ns))
                if (since_ns is None or message.bus_at_ns >= since_ns)
                and (until_ns is None or message.bus_at_ns < until_ns)
            ]
            if messages:
                yield sorted(messages, key=lambda m: (m.bus_at_ns, m.bus_seq))
    finally:
        with suppress(KafkaError):
            await stop(consumer)


async def _seek(consumer: Any, partitions: list[Any], since_ns: int | None) -> None:
    """To the first record that may lie within the span, or to the end of a partition that has none."""
    begins: Mapping[Any, int] = await consumer.beginning_offsets(partitions)
    if since_ns is not None:
        at_ms = max(0, since_ns - MAX_LATE_NS) // NS_PER_MS
        found = await consumer.offsets_for_times({partition: at_ms for partition in partitions})
        ends = await consumer.end_offsets(partitions)
        begins = {p: found[p].offset if found.get(p) is not None else ends[p] for p in partitions}
    for partition, offset in begins.items():
        consumer.seek(partition, offset)


async def _ends(consumer: Any, partitions: list[Any], until_ns: int | None) -> dict[Any, int]:
    """Partition → offset behind the last record that may lie within the span."""
    ends: dict[Any, int] = dict(await consumer.end_offsets(partitions))
    if until_ns is not None:
        at_ms = (max(0, until_ns) + MAX_EARLY_NS) // NS_PER_MS + 1
        found = await consumer.offsets_for_times({partition: at_ms for partition in partitions})
        ends |= {p: min(ends[p], found[p].offset) for p in partitions if found.get(p) is not None}
    return ends


async def _is_before(consumer: Any, ends: Mapping[Any, int]) -> bool:
    """Whether a partition is not read to its end yet; those that are rest."""
    done = [partition for partition, end in ends.items() if await consumer.position(partition) >= end]
    consumer.pause(*done)
    return len(done) < len(ends)


async def _fetch(consumer: Any, bus: KafkaBus, topic: str) -> dict[Any, list[Any]]:
    try:
        found: dict[Any, list[Any]] = await consumer.getmany(timeout_ms=_WAIT_MS)
    except OffsetOutOfRangeError as error:
        begins = await consumer.beginning_offsets(list(error.args[0]))
        for partition, offset in error.args[0].items():
            bus.counters.add("lost", f"span:{topic}", max(0, begins[partition] - offset))
            consumer.seek(partition, begins[partition])
        return {}
    return found


def _message(bus: KafkaBus, topic: str, record: Any, floors_ns: dict[Any, int]) -> Message | None:
    """The message of `record`; None, and counted: it cannot be decoded."""
    read = bus.decoded.of(topic, record.partition, record)
    decoded = read.outcome
    if isinstance(decoded, FormatError):
        bus.counters.add("refused", decoded.reason)
        return None
    bus.counters.add("refused", "null-rows", decoded.refused_rows)
    by_broker = record.timestamp_type == LOG_APPEND_TIME
    floor_ns = floors_ns.get(record.partition, 0)
    at_ns, _ = entered_at_ns(decoded.bus_at_ns, record.timestamp, by_broker, floor_ns)
    floors_ns[record.partition] = at_ns
    seq = record.offset | record.partition << PARTITION_BITS
    return Message(topic, read.key, decoded.body, at_ns, seq, decoded.boot_id, decoded.batch_seq)
