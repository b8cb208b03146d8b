"""A setting names a bus."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sdfstream.bus.memory.bus_io import MemoryBus
from sdfstream.bus.open_io import open_bus
from sdfstream.errors import ConfigError, UnavailableError


async def test_memory_is_the_in_process_bus() -> None:
    bus = await open_bus("memory", lambda: 1, boot_id="b")
    assert isinstance(bus, MemoryBus)
    await bus.close()


@pytest.mark.parametrize("name", ["", "redis://x:1", "kafka://", "kafka://nowhere", "kafka://a:1,b"])
async def test_anything_else_is_a_sentence(name: str) -> None:
    with pytest.raises(ConfigError, match=r"bus is '.*'; it must be memory or kafka://host:port"):
        await open_bus(name, lambda: 1, boot_id="b")


async def test_a_kafka_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(UnavailableError, match=r"looking for a broker at 127\.0\.0\.1:1"):
        await open_bus("kafka://127.0.0.1:1", lambda: 1, boot_id="b")


def test_kafkas_client_is_loaded_only_when_it_is_used() -> None:
    code = "import sys, sdfstream.bus.open_io; print('aiokafka' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
