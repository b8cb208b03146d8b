"""What a pipeline on a broker told of the fabric's hosts, held against what it would have told without strangers.

Both are judged on the same input. A machine that is starved moves the instants at which agents and fabric publish, and
another story is rightly told otherwise: two runs differ then, strangers or not. So the fabric's and the agents' own
messages are read again from the broker, with the bus times that they had, and go through the same stages in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.groups_io import make_consumer
from sdfstream.errors import FormatError
from sdfstream.pipeline import WRITTEN
from sdfstream.records.message import Event
from sdfstream.records.topics import FINDING, TOPICS
from tests.fuzz.chain import MAKERS, Chain
from tests.fuzz.fabric import STORY
from tests.fuzz.stages import OURS
from tests.fuzz.strangers import digest

Told = set[tuple[str, str]]
"""(kind, subject) of findings about the fabric's and the agents' hosts."""
STAGES: Final = ("sync", "workload", "detect")
MUST: Final[Told] = {("agent-stale", str(fault.agent)) for fault in STORY if fault.agent}
"""Findings without which the story was not understood, however starved the machine was."""


async def records(bus: KafkaBus, topics: list[str]) -> AsyncIterator[tuple[str, Any]]:
    """Topic and record of all that stands in `topics` now, as the brokers hold it."""
    consumer: AIOKafkaConsumer = make_consumer(bus.config, "fuzz-again")
    await consumer.start()
    try:
        names = [bus.config.prefix + topic for topic in topics]
        partitions = [TopicPartition(name, number) for name in names for number in await bus.partitions_of(name)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        begins = await consumer.beginning_offsets(partitions)
        for one in partitions:
            consumer.seek(one, begins[one])
        left = {one for one in partitions if begins[one] < ends[one]}
        while left:
            for partition, several in (await consumer.getmany(timeout_ms=500)).items():
                for record in several:
                    if record.offset < ends[partition]:
                        yield partition.topic.removeprefix(bus.config.prefix), record
            left = {one for one in left if await consumer.position(one) < ends[one]}
    finally:
        await consumer.stop()


async def dead(bus: KafkaBus) -> tuple[dict[bytes, str], int]:
    """Digest of the message in each dead letter, and the reason; and the number of letters, repeated ones too."""
    found, letters = {}, 0
    async for topic, record in records(bus, [f"{name}{dead_letters.SUFFIX}" for name in TOPICS]):
        headers = dict(record.headers)
        if dead_letters.FORM not in headers:  # a stage's word about a message that could be read
            name = digest(topic.removesuffix(dead_letters.SUFFIX), record.value or b"")
            found[name] = headers.get("dlq_reason", b"").decode()
            letters += 1
    return found, letters


async def live(bus: KafkaBus) -> Told:
    """What the pipeline told."""
    told: Told = set()
    async for topic, record in records(bus, [FINDING.name]):
        body = _body(topic, record)
        if isinstance(body, Event) and body.source == "detect":
            told |= _ours(body)
    return told


async def without_strangers(bus: KafkaBus, strangers: Container[bytes]) -> Told:
    """What the same stages tell of the same messages, those of `strangers` (by `digest`) left out."""
    topics = sorted({topic for name in STAGES for topic in MAKERS[name]().reads} - WRITTEN)
    messages = []
    async for topic, record in records(bus, topics):
        if digest(topic, record.value or b"") not in strangers:
            decoded = _decoded(topic, record)
            if decoded is not None and decoded.bus_at_ns is not None:
                messages.append((decoded.bus_at_ns, topic, record.offset, (record.key or b"").decode(), decoded))
    messages.sort(key=lambda one: one[:3])
    if not messages:
        return set()
    chain = Chain(STAGES, now_ns=messages[0][0], outputs=[])
    for at_ns, topic, _, key, decoded in messages:
        chain.message(topic, key, decoded.body, at_ns, decoded.boot_id, decoded.batch_seq)
    told: Told = set()
    for _, stage, output in chain.outputs or ():
        if stage == "detect" and output.topic == FINDING.name and isinstance(output.body, Event):
            told |= _ours(output.body)
    return told


def _ours(event: Event) -> Told:
    subject = event.data.get("subject")
    name = str(subject.get("id")) if isinstance(subject, dict) else ""
    return {(str(event.data.get("kind")), name)} if OURS.fullmatch(name) else set()


def _decoded(topic: str, record: Any) -> codec.Decoded | None:
    headers = [(name, raw or b"") for name, raw in record.headers]
    try:
        return codec.decode(topic, headers, record.value or b"", (record.key or b"").decode(errors="replace"))
    except FormatError:
        return None


def _body(topic: str, record: Any) -> Any:
    decoded = _decoded(topic, record)
    return None if decoded is None else decoded.body
