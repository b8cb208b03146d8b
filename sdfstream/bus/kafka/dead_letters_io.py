"""Keeping a dead letter, also for readers that may not write.

Agents, recorders and operators read topics that stages and the archive read too; those keep what cannot be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka.errors import TopicAuthorizationFailedError

from sdfstream.errors import ConfigError
from sdfstream.records.message import Output

if TYPE_CHECKING:
    from sdfstream.bus.kafka.bus_io import KafkaBus


async def keep(bus: KafkaBus, letter: Output) -> None:
    """Publish `letter`; a reader without the right to counts it (``letter-denied``) and goes on."""
    try:
        await bus.publish([letter])
    except ConfigError as error:
        if not isinstance(error.__cause__, TopicAuthorizationFailedError):
            raise
        bus.counters.add("letter-denied", letter.topic)
