"""The bus on Kafka keeps the bus's contract against a real broker."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import count

import pytest

from sdfstream.bus.kafka.bus_io import KafkaBus, KafkaConfig
from tests.contract.bus import BusContract, MakeBus
from tests.contract.tasks import TaskContract
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka

_PREFIXES = count()


@pytest.fixture
async def make_bus(kafka: Broker) -> AsyncIterator[MakeBus]:
    made: list[KafkaBus] = []
    prefix = f"t{next(_PREFIXES)}-{time.time_ns()}."

    async def make(*, again: bool = False) -> KafkaBus:
        config = KafkaConfig(servers=kafka.address, prefix=prefix, max_message_bytes=4 << 20)
        bus = KafkaBus(config, time.time_ns, boot_id="here")
        await bus.start()
        made.append(bus)
        return bus

    yield make
    for bus in made:
        await bus.close()


class TestKafkaBus(BusContract):
    """See `BusContract`."""


class TestKafkaTasks(TaskContract):
    """See `TaskContract`."""
