"""The bus's producer when it can send no more: replaced, the same numbers again, nobody waits for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from itertools import count
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.errors import BusError, FormatError
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK
from tests.bus_samples import clock, clock_batch
from tests.contract.bus import marks, take
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka

_PREFIXES = count()


@pytest.fixture
async def bus(kafka: Broker) -> AsyncIterator[KafkaBus]:
    prefix = f"s{next(_PREFIXES)}-{time.time_ns()}."
    made = KafkaBus(
        KafkaConfig(servers=kafka.address, prefix=prefix, max_message_bytes=1 << 20, record_compression="zstd"),
        time.time_ns,
        boot_id="here",
    )
    await made.start()
    yield made
    await made.close()


def numbered(n: int) -> Output:
    return Output(CLOCK.name, "h", clock_batch(n), "agent", n)


async def test_sequence_numbers_that_the_brokers_refuse_cost_a_producer_and_no_message(bus: KafkaBus) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    await bus.publish([numbered(0)])
    producer = await bus._steady.get()
    # as after a batch that failed for good: the client counts on from it, the brokers do not
    producer._txn_manager._sequence_numbers[TopicPartition(bus.config.prefix + CLOCK.name, 0)] += 7
    with pytest.raises(BusError, match="OutOfOrderSequenceNumber"):
        await bus.publish([numbered(1), numbered(2)])
    await bus.publish([numbered(1), numbered(2)])
    found = await take(reader, 3)
    assert [(m.boot_id, m.batch_seq) for m in found] == [("agent", 0), ("agent", 1), ("agent", 2)]
    assert marks(found) == [0, 1, 2]
    assert bus.counters.get("producer-renewed", "OutOfOrderSequenceNumber") == 1


async def test_a_sender_that_died_is_replaced(bus: KafkaBus) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    producer = await bus._steady.get()

    async def broken(*_: Any) -> None:
        raise RuntimeError("a defect of the client")

    producer._sender._send_produce_req = broken
    with pytest.raises(BusError):
        await bus.publish([numbered(0)])
    await bus.publish([numbered(0)])
    assert marks(await take(reader, 1)) == [0]
    assert bus.counters.total("producer-renewed") == 1


async def test_a_topic_that_takes_less_than_it_did_refuses_only_what_is_too_large(bus: KafkaBus) -> None:
    reader = await bus.subscribe("g", [CLOCK.name])
    admin = AIOKafkaAdminClient(bootstrap_servers=bus.config.servers)
    await admin.start()
    topic = bus.config.prefix + CLOCK.name
    await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"max.message.bytes": "20000"})])
    await admin.close()
    large = Output(CLOCK.name, "h", clock_batch(1, 20_000), "agent", 1)
    async with asyncio.timeout(20):
        while True:  # the broker learns of it a moment later
            try:
                await bus.publish([large])
            except FormatError as error:
                assert error.reason == "oversize"
                break
    await bus.publish([numbered(2)])
    assert (await take_until(reader, 2))[-1] == 2


async def take_until(reader: Any, mark: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(20):
        while mark not in found:
            found += marks(await reader.read())
    return found


async def test_while_brokers_do_not_answer_a_caller_may_give_up_and_a_bus_may_close(
    kafka: Broker, bus: KafkaBus
) -> None:
    await bus.publish([clock(0)])
    assert kafka.pid is not None
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await bus.publish([clock(1)])
        assert time.monotonic() - began < 5
        waiting = asyncio.create_task(bus.publish([clock(2)]))
        await asyncio.sleep(0.1)
        await asyncio.wait_for(bus.close(), 20)
        with pytest.raises(BusError, match="ProducerClosed"):
            await asyncio.wait_for(waiting, 1)
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
