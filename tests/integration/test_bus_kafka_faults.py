"""The Kafka bus when things are not as they should be: brokers away, topics too small, clocks off, clients stuck."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.structs import TopicPartition

from sdfstream.bus import codec
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.topic_rules import TopicRule
from sdfstream.bus.task import Work
from sdfstream.errors import BusError, ConfigError, UnavailableError
from sdfstream.records.message import Message, Output
from sdfstream.records.topics import CLOCK, NIC
from sdfstream.records.units import NS_PER_S
from tests.bus_samples import clock, clock_batch, mark_of
from tests.contract.bus import marks, take
from tests.contract.tasks import read
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.kafka_records import BAD, let_producers_write_any_name

pytestmark = pytest.mark.kafka

_PREFIXES = count()


@pytest.fixture
def config(kafka: Broker) -> KafkaConfig:
    """A name space of its own on the session's broker."""
    return KafkaConfig(servers=kafka.address, prefix=f"f{next(_PREFIXES)}-{time.time_ns()}.", max_message_bytes=1 << 20)


@pytest.fixture
async def opened() -> AsyncIterator[Callable[..., Any]]:
    """Starts buses and closes them at the end."""
    made: list[KafkaBus] = []

    async def start(config: KafkaConfig, clock_ns: Callable[[], int] = time.time_ns) -> KafkaBus:
        bus = KafkaBus(config, clock_ns, boot_id="here")
        made.append(bus)
        await bus.start()
        return bus

    yield start
    for bus in made:
        await bus.close()


async def admin_of(config: KafkaConfig) -> Any:
    admin = AIOKafkaAdminClient(bootstrap_servers=config.servers)
    await admin.start()
    return admin


async def test_a_topic_too_small_for_our_messages_is_a_sentence_at_start(config: KafkaConfig, opened: Any) -> None:
    admin = await admin_of(config)
    small = NewTopic(config.prefix + CLOCK.name, 1, 1, topic_configs={"max.message.bytes": "100000"})
    await admin.create_topics([small])
    await admin.close()
    with pytest.raises(ConfigError, match=r"max_message_bytes is 1048576, but .* takes only 100000 bytes"):
        await opened(config)


async def test_absent_topics_that_may_not_be_created_are_a_sentence(config: KafkaConfig, opened: Any) -> None:
    with pytest.raises(ConfigError, match="cannot be used: UnknownTopicOrPartitionError"):
        await opened(replace(config, create_topics=False))


async def test_more_replicas_than_brokers_is_a_sentence(config: KafkaConfig, opened: Any) -> None:
    with pytest.raises(ConfigError, match="InvalidReplicationFactorError"):
        await opened(replace(config, replication=3))


async def test_no_broker_is_a_sentence(opened: Any) -> None:
    with pytest.raises(UnavailableError, match=r"looking for a broker at 127\.0\.0\.1:1"):
        await opened(KafkaConfig(servers="127.0.0.1:1"))


@pytest.mark.parametrize("wrong", [{"max_message_bytes": 10}, {"partitions": 0}, {"stall_s": 0.0}])
def test_a_wrong_setting_names_its_key(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\."):
        KafkaBus(KafkaConfig(**wrong), time.time_ns, boot_id="b")


async def test_topics_are_made_as_they_must_be(config: KafkaConfig, opened: Any) -> None:
    from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

    await opened(config)
    admin = await admin_of(config)
    found = {}
    for topic in (CLOCK.name, NIC.name, CLOCK.dead_letters):
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, config.prefix + topic)])
        found[topic] = {key: value for key, value, *_ in answer.resources[0][4]}
    await admin.close()
    assert found[NIC.name]["cleanup.policy"] == "compact"
    assert found[CLOCK.name]["cleanup.policy"] == "delete"
    assert found[CLOCK.name]["message.timestamp.type"] == "LogAppendTime"
    assert int(found[CLOCK.dead_letters]["max.message.bytes"]) > int(found[CLOCK.name]["max.message.bytes"]) > 1 << 20


async def test_the_largest_message_passes_and_so_does_its_dead_letter(config: KafkaConfig, opened: Any) -> None:
    bus = await opened(config)
    reader = await bus.subscribe("g", [CLOCK.name])
    dead = await bus.subscribe("dead", [CLOCK.dead_letters])
    await bus.publish_bytes(CLOCK.name, "k" * 1000, [("schema", CLOCK.name.encode())], os.urandom(1 << 20))
    await bus.publish([clock(1)])
    assert marks(await take(reader, 1)) == [1]
    (letter,) = await take(dead, 1)
    assert letter.body.data["reason"] == "arrow-corrupt"  # type: ignore[union-attr]
    await bus.publish_bytes(CLOCK.name, "k", [], bytes((1 << 20) + 1))
    assert bus.counters.get("refused", "oversize") == 1


async def test_a_frozen_broker_holds_publishers_back(kafka: Broker, config: KafkaConfig, opened: Any) -> None:
    bus = await opened(config)
    await bus.publish([clock(0)])
    assert kafka.pid is not None
    os.kill(kafka.pid, signal.SIGSTOP)
    try:
        publishing = asyncio.create_task(bus.publish([clock(1)]))
        await asyncio.sleep(0.7)
        assert not publishing.done()
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    await asyncio.wait_for(publishing, 20)


async def test_partitions_share_the_keys_and_every_message_has_its_own_number(config: KafkaConfig, opened: Any) -> None:
    bus = await opened(replace(config, topics=(TopicRule(CLOCK.name, partitions=3),)))
    a = await bus.subscribe("g", [CLOCK.name])
    b = await bus.subscribe("g", [CLOCK.name])
    await bus.publish([clock(i, f"k{i % 8}") for i in range(80)])
    found: list[Message] = []
    by_member: list[set[str]] = [set(), set()]
    async with asyncio.timeout(20):
        while len(found) < 80:
            for keys, member in zip(by_member, (a, b), strict=True):
                messages = await member.read(timeout_s=0.05)
                keys.update(m.key for m in messages)
                found += messages
    assert by_member[0]
    assert by_member[1]
    assert not by_member[0] & by_member[1]
    assert len({m.bus_seq for m in found}) == 80
    for k in range(8):
        assert marks([m for m in found if m.key == f"k{k}"]) == list(range(k, 80, 8))
    assert {m.bus_seq >> 48 for m in found} <= {0, 1, 2}
    assert bus.counters.total("gap") == bus.counters.total("repeat") == 0


async def test_a_clock_that_is_hours_off_does_not_move_bus_time(config: KafkaConfig, opened: Any) -> None:
    good = await opened(config)
    reader = await good.subscribe("g", [CLOCK.name])
    for hours in (-5, 0, 3, 0):
        bus = await opened(config, lambda hours=hours: time.time_ns() + hours * 3600 * NS_PER_S)
        await bus.publish([clock(10 + hours)])
    found = await take(reader, 4)
    assert marks(found) == [5, 10, 13, 10]
    assert all(abs(m.bus_at_ns - time.time_ns()) < 60 * NS_PER_S for m in found)
    assert [m.bus_at_ns for m in found] == sorted(m.bus_at_ns for m in found)
    assert good.counters.get("clock-set-aside", CLOCK.name) == 2
    assert any(m.bus_at_ns % 1_000_000 for m in found), "nanoseconds of the producers' own clock"


async def test_what_retention_took_is_counted(config: KafkaConfig, opened: Any) -> None:
    bus = await opened(config)
    reader = await bus.subscribe("g", [CLOCK.name])
    await bus.publish([clock(0)])
    await take(reader, 1)
    await reader.commit()
    await bus.publish([clock(i) for i in range(1, 10)])
    await reader.close()
    admin = await admin_of(config)
    await admin.delete_records({TopicPartition(config.prefix + CLOCK.name, 0): RecordsToDelete(before_offset=7)})
    await admin.close()
    again = await bus.subscribe("g", [CLOCK.name])
    assert marks(await take(again, 3)) == [7, 8, 9]
    assert bus.counters.get("lost", f"g:{CLOCK.name}") == 6


async def test_a_stuck_consumer_is_replaced_where_it_stood(
    config: KafkaConfig, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await opened(replace(config, stall_s=0.3))
    reader = await bus.subscribe("g", [CLOCK.name])
    await bus.publish([clock(0), clock(1)])
    await take(reader, 2)  # not committed: the new consumer must not give them out again
    stuck = reader._consumer

    async def nothing(**_: object) -> dict[object, object]:
        await asyncio.sleep(0.05)
        return {}

    monkeypatch.setattr(stuck, "getmany", nothing)
    for _ in range(10):
        assert await reader.read() == []
    assert bus.counters.get("consumer-restarted", "g") == 0, "nothing to read is no stall"
    await bus.publish([clock(2), clock(3)])
    assert marks(await take(reader, 2)) == [2, 3]
    assert bus.counters.get("consumer-restarted", "g") == 1
    assert reader.lag() == 0
    await reader.commit()


async def test_what_could_not_be_kept_is_read_again(
    config: KafkaConfig, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await opened(config)
    reader = await bus.subscribe("g", [CLOCK.name])
    await bus.publish([clock(1)])
    await bus.publish_bytes(CLOCK.name, "k", [], b"rubbish")
    await bus.publish([clock(2)])
    whole = bus.publish

    async def fails(outputs: list[Output]) -> None:
        monkeypatch.setattr(bus, "publish", whole)
        raise BusError("no")

    monkeypatch.setattr(bus, "publish", fails)
    found: list[Message] = []
    failed = 0
    async with asyncio.timeout(20):
        while len(found) < 2:
            try:
                found += await reader.read()
            except BusError:
                failed += 1
    assert (marks(found), failed) == ([1, 2], 1)
    dead = await bus.subscribe("dead", [CLOCK.dead_letters], from_start=True)
    await take(dead, 1)


async def test_a_record_whose_header_name_is_no_text_is_set_aside_alone(
    config: KafkaConfig, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody with the right to write makes one; it ended every reader of its topic for good, in the client."""
    let_producers_write_any_name(monkeypatch)
    bus = await opened(replace(config, linger_ms=200))  # all in one batch, which a broker gives out whole
    reader = await bus.subscribe("g", [CLOCK.name, NIC.name])
    dead = await bus.subscribe("dead", [CLOCK.dead_letters])
    work = Work("echo", (CLOCK.name,))
    task = await bus.task(work)

    async def write(n: int) -> None:
        await bus.publish([clock(n)])

    async def write_no_text(n: int) -> None:
        headers, value = codec.encode(clock(n), "agent", n)
        await bus.publish_bytes(CLOCK.name, "mesh", [*headers, (BAD, b"")], value)

    await asyncio.gather(*((write_no_text if n in (1, 4) else write)(n) for n in range(6)))
    assert sorted(marks(await take(reader, 4))) == [0, 2, 3, 5]
    assert sorted(marks(await read(task, 4))) == [0, 2, 3, 5]
    assert bus.counters.get("refused", "record") == 4, "two by the subscription, two by the task"
    assert [m.body.data["reason"] for m in await take(dead, 2)] == ["record"] * 2  # type: ignore[union-attr]
    assert await dead.read(timeout_s=0.3) == [], "the task's come with its commit"
    await task.commit()
    assert [m.body.data["reason"] for m in await take(dead, 2)] == ["record"] * 2  # type: ignore[union-attr]
    await reader.commit()
    await task.close()
    await reader.close()
    again, task = await bus.subscribe("g", [CLOCK.name]), await bus.task(work)
    await bus.publish([clock(7)])
    assert marks(await take(again, 1)) == [7]
    assert marks(await read(task, 1)) == [7]
    await task.commit()
    assert await dead.read(timeout_s=0.3) == []
    assert bus.counters.get("refused", "record") == 4
    assert bus.counters.total("gap") == 0


async def test_killing_the_broker_loses_and_doubles_nothing(kafka_jars: Path, tmp_path: Path, opened: Any) -> None:
    """One kill -9 in the middle of publishing; the idempotent producer sends again what was not acknowledged."""
    with Broker(kafka_jars, tmp_path / "own") as broker:
        bus = await opened(KafkaConfig(servers=broker.address))
        reader = await bus.subscribe("g", [CLOCK.name])
        seen: list[int] = []

        async def publish() -> None:
            for i in range(120):
                await bus.publish([clock(i)])
                await asyncio.sleep(0.01)

        async def read() -> None:
            while len(seen) < 120:
                try:
                    seen.extend(marks(await reader.read()))
                except (BusError, UnavailableError):
                    await asyncio.sleep(0.1)

        async def disturb() -> None:
            await asyncio.sleep(0.5)
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)

        async with asyncio.timeout(90):
            await asyncio.gather(publish(), read(), disturb())
        assert seen == list(range(120))
        assert bus.counters.total("gap") == bus.counters.total("repeat") == 0
        await bus.close()


async def test_agents_bytes_pass_through_unread(config: KafkaConfig, opened: Any) -> None:
    """A stamp of the agent's own bus in the header gives way to this bus's."""
    bus = await opened(config)
    reader = await bus.subscribe("g", [CLOCK.name])
    headers, value = codec.encode(Output(CLOCK.name, "h", clock_batch(4)), "agent", 2, bus_at_ns=5)
    await bus.publish_bytes(CLOCK.name, "h", headers, value)
    (message,) = await take(reader, 1)
    assert (mark_of(message.body), message.boot_id, message.batch_seq) == (4, "agent", 2)
    assert message.bus_at_ns > 10**18
