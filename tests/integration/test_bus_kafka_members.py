"""Members that are frozen for longer than their session and their transactions, on a real broker."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.groups_io import stop
from sdfstream.bus.kafka.producer_io import transactional
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.kafka_member import QUICK_BROKER, Pair, Times

pytestmark = pytest.mark.kafka
SETTLE_S = 30.0
QUIET_S = 12.0
"""A duel of members shows within this: they fenced each other every 4 s, without a pause in the running."""


@pytest.fixture(scope="module")
def quick_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker of our own, which may be killed."""
    with Broker(kafka_jars, tmp_path_factory.mktemp("quick-kafka"), **QUICK_BROKER) as broker:
        yield broker


@pytest.fixture
async def pair(quick_kafka: Broker, tmp_path: Path) -> AsyncIterator[Pair]:
    config = KafkaConfig(servers=quick_kafka.address, prefix=f"m{time.time_ns()}.", request_timeout_ms=5_000)
    bus = KafkaBus(config, time.time_ns, boot_id="feeder")
    await bus.start()
    try:
        async with Pair(bus, tmp_path) as pair:
            yield pair
    finally:
        await bus.close()


async def test_a_member_frozen_through_an_outage_gives_way_and_nothing_is_doubled(
    quick_kafka: Broker, pair: Pair
) -> None:
    await asyncio.sleep(1.5 * Times().hangs / 1000)  # a group client that nobody polls has left by now
    frozen = pair.owner()
    assert frozen is not None
    frozen.freeze()
    await pair.until(lambda: pair.other(frozen).runs, SETTLE_S)
    quick_kafka.kill()
    quick_kafka.start()  # in this thread, with whose end the broker would end
    frozen.thaw()
    thawed_s = time.monotonic()
    await pair.until(lambda: frozen.count("fenced", thawed_s) + frozen.count("left", thawed_s), SETTLE_S)
    await pair.until(lambda: pair.owner() is not None, SETTLE_S)
    await pair.echoed()
    settled_s = time.monotonic()
    await asyncio.sleep(QUIET_S)
    assert pair.fences(settled_s) == 0, {member.name: member.said for member in pair.members}
    assert pair.owner() is pair.other(frozen), "the unit stays where it is"
    await pair.echoed()
    assert max(pair.heard.values()) == 1, "echoed twice"


async def test_a_run_that_was_fenced_begins_again_at_once_where_nobody_else_has_it(pair: Pair) -> None:
    """As after a transaction that the brokers ended because its time was up."""
    owner = pair.owner()
    assert owner is not None
    await pair.echoed()
    config = pair.bus.config
    for _ in range(3):
        fenced_s = time.monotonic()
        await stop(await transactional(config, f"{config.prefix}echo/0of1"))
        await pair.until(lambda since_s=fenced_s: owner.count("fenced", since_s), SETTLE_S)
        assert await pair.until(lambda: owner.runs, SETTLE_S) < 4.0
        await pair.echoed()
    assert pair.owner() is owner and pair.fences(0.0) == 3
    assert max(pair.heard.values()) == 1


async def test_a_member_that_is_busy_for_longer_than_its_session_keeps_its_unit(pair: Pair) -> None:
    owner = pair.owner()
    assert owner is not None
    await pair.echoed()
    assert Times().session < Times().busy < Times().hangs
    owner.keep_busy()
    await asyncio.sleep(Times().busy / 1000 + 1.0)
    await pair.echoed()
    assert pair.owner() is owner and not pair.other(owner).said
    assert max(pair.heard.values()) == 1
