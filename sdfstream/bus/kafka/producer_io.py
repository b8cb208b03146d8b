"""Producers: idempotent ones, and transactional ones that fence every earlier producer of their name."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from sdfstream.bus import codec
from sdfstream.bus.kafka.client import KafkaClient
from sdfstream.bus.kafka.config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.groups_io import stop
from sdfstream.bus.kafka.security_io import client_settings
from sdfstream.errors import FormatError

TRANSACTION_MS: Final = 15_000
"""The brokers abort a transaction after this long; until then readers do not see what stands behind it."""


async def idempotent(config: KafkaConfig) -> Any:
    """A started producer whose records are stored once each, in order per partition."""
    return await _started(AIOKafkaProducer(**_settings(config)))


async def transactional(config: KafkaConfig, name: str) -> Any:
    """A started producer of transactions; from now on no other of this `name` can commit."""
    return await _started(
        AIOKafkaProducer(**_settings(config), transactional_id=name, transaction_timeout_ms=TRANSACTION_MS)
    )


async def send(
    bus: KafkaClient, producer: Any, topic: str, key: str, headers: codec.Headers, value: bytes
) -> asyncio.Future[Any]:
    """Hand one record to the producer; its future must be awaited, since a failure shows only there."""
    limit = bus.config.max_message_bytes
    if len(value) > limit:
        bus.counters.add("refused", "oversize")
        raise FormatError("oversize", f"{len(value)} bytes for {topic}, more than max_message_bytes {limit}")
    with mapped("publishing"):
        name = bus.config.prefix + topic
        future: asyncio.Future[Any] = await producer.send(name, value, key=key.encode(), headers=headers)
    return future


def _settings(config: KafkaConfig) -> dict[str, Any]:
    return {
        **client_settings(config),
        "enable_idempotence": True,
        "acks": "all",
        "linger_ms": config.linger_ms,
        "compression_type": config.record_compression,
        "max_request_size": config.max_message_bytes + 2 * SLACK_BYTES,
        "max_batch_size": config.max_message_bytes,
        "request_timeout_ms": config.request_timeout_ms,
    }


async def _started(producer: Any) -> Any:
    try:
        with mapped("connecting a producer"):
            await producer.start()
    except BaseException:
        await stop(producer)
        raise
    return producer
