"""The bus a setting names: ``memory`` or ``kafka://host:port[,host:port]``."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from sdfstream.bus import Bus
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.memory.clock import ForwardClock
from sdfstream.errors import ConfigError
from sdfstream.secret import without_password

KAFKA = "kafka://"


async def open_bus(name: str, clock: Callable[[], int], *, boot_id: str, kafka: KafkaConfig | None = None) -> Bus:
    """A bus ready for use.

    Parameters
    ----------
    name : str
        ``memory`` or ``kafka://host:port[,host:port]``.
    clock : callable
        The bus's clock, ns since the Unix epoch.
    boot_id : str
        Names this run.
    kafka : KafkaConfig, optional
        Settings of Kafka; `servers` is overwritten.

    Raises
    ------
    ConfigError
        The name is neither; or as `KafkaBus.start`.
    UnavailableError
        No broker answers.
    """
    if name == "memory":
        return MemoryBus(ForwardClock(clock, time.monotonic_ns), boot_id=boot_id)
    config = kafka_at(name, kafka or KafkaConfig())
    from sdfstream.bus.kafka.bus_io import KafkaBus  # a process without Kafka does not load its client

    bus = KafkaBus(config, clock, boot_id=boot_id)
    await bus.start()
    return bus


def kafka_at(name: str, kafka: KafkaConfig) -> KafkaConfig:
    """`kafka` with the brokers that the bus's `name` names; raises ConfigError when it names none."""
    servers = name.removeprefix(KAFKA)
    if not name.startswith(KAFKA) or not servers or any(":" not in server for server in servers.split(",")):
        raise ConfigError(f"bus is '{without_password(name)}'; it must be memory or kafka://host:port[,host:port]")
    if "@" in servers:
        raise ConfigError("bus: kafka://… names a user; that is kafka.user, its password kafka.password_file")
    return replace(kafka, servers=servers)
