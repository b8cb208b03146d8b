"""Declared cabling onto a Kafka bus: one message, in place of the one before."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.open_io import open_bus
from sdfstream.records.fabric import DECLARED_TYPE
from sdfstream.records.message import Event, Output
from sdfstream.records.topics import TOPOLOGY

KEY: Final = "declared"
_SOURCE: Final = "operator"


async def declare(bus_name: str, kafka: KafkaConfig, data: Mapping[str, Any]) -> None:
    """Publish `data`, checked cabling (`plan.cabling_file`); returns when the brokers have it.

    Raises
    ------
    ConfigError, UnavailableError, BusError
        As the bus.
    """
    run = uuid.uuid4().hex
    bus = await open_bus(bus_name, time.time_ns, boot_id=run, kafka=kafka)
    try:
        event = Event(DECLARED_TYPE, _SOURCE, f"declared-{run[:8]}", time.time_ns(), data)
        await bus.publish([Output(TOPOLOGY.name, KEY, event)])
    finally:
        await bus.close()
