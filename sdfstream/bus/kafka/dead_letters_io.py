"""Publishing a dead letter, also from readers that may not write.

Stages and the archive between them read every topic and may write dead letters; agents, recorders and operators need
not.
"""

from __future__ import annotations

from aiokafka.errors import TopicAuthorizationFailedError

from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.errors import ConfigError
from sdfstream.records.message import Output


async def publish_dead_letter(bus: KafkaClient, dead_letter: Output) -> None:
    """Publish `dead_letter`; without the right to write there it is only counted (``letter-denied``)."""
    try:
        await bus.publish([dead_letter])
    except ConfigError as error:
        if not isinstance(error.__cause__, TopicAuthorizationFailedError):
            raise
        bus.counters.add("letter-denied", dead_letter.topic)
