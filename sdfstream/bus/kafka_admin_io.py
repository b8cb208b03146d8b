"""Topics on the brokers: created as they must be, and checked before anything is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError, for_code

from sdfstream.bus import codec, dead_letters
from sdfstream.bus.kafka_config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka_errors_io import mapped
from sdfstream.errors import ConfigError
from sdfstream.records.topics import CHECKPOINT, TOPICS, Topic

SETTLE_S: Final = 15.0
"""How long a topic just created may take to be known to the broker we ask."""
ALL_TOPICS: Final = (*(n for t in TOPICS.values() for n in (t.name, t.dead_letters)), CHECKPOINT.name)


async def prepare(config: KafkaConfig) -> str:
    """Create the topics that are absent (where allowed) and check that all take messages of our largest size.

    Returns the id that the cluster gave itself.

    Raises
    ------
    UnavailableError
        No broker answers.
    ConfigError
        A topic takes only smaller messages, is absent, or may not be created.
    """
    admin = AIOKafkaAdminClient(bootstrap_servers=config.servers, request_timeout_ms=config.request_timeout_ms)
    try:
        with mapped(f"looking for a broker at {config.servers}"):
            await admin.start()
        with mapped("creating topics"):
            have = set(await admin.list_topics())
            absent = [n for n in ALL_TOPICS if config.prefix + n not in have]
            if absent and config.create_topics:
                await _create(admin, config, absent)
        with mapped("reading the topics' settings"):
            await _check_sizes(admin, config, SETTLE_S if absent and config.create_topics else 0.0)
        with mapped("asking for the cluster's id"):
            return str((await admin.describe_cluster()).get("cluster_id") or "")
    finally:
        await admin.close()


def topic_settings(config: KafkaConfig, topic: Topic) -> dict[str, str]:
    """The settings a topic is created with.

    The brokers stamp messages on arrival (LogAppendTime), since a producer's clock may be hours off.
    """
    room = SLACK_BYTES * (2 if dead_letters.is_dead(topic.name) else 1)
    return {
        "max.message.bytes": str(config.max_message_bytes + room),
        "message.timestamp.type": "LogAppendTime",
        "cleanup.policy": "compact" if topic.compacted else "delete",
    }


async def _create(admin: Any, config: KafkaConfig, names: Iterable[str]) -> None:
    wanted = [
        NewTopic(
            config.prefix + name,
            num_partitions=config.partitions,
            replication_factor=config.replication,
            topic_configs=topic_settings(config, CHECKPOINT if name == CHECKPOINT.name else codec.topic_of(name)),
        )
        for name in names
    ]
    # errors stand in the answer; nothing is raised for them
    answer = await admin.create_topics(wanted)
    for name, code, *why in answer.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise error(f"{name}: {' '.join(str(w) for w in why)}")


async def _check_sizes(admin: Any, config: KafkaConfig, settle_s: float) -> None:
    """Every topic takes our largest message; one just created may be unknown for up to `settle_s`."""
    need = config.max_message_bytes + SLACK_BYTES
    deadline_s = asyncio.get_running_loop().time() + settle_s
    waiting = {config.prefix + name for name in ALL_TOPICS}
    while waiting:
        for code, why, name, allowed in await _sizes(admin, waiting):
            if code == UnknownTopicOrPartitionError.errno and asyncio.get_running_loop().time() < deadline_s:
                continue
            if code:
                raise ConfigError(f"Kafka's topic {name} cannot be used: {for_code(code).__name__} {why}")
            waiting.discard(name)
            if allowed < need:
                raise ConfigError(
                    f"bus.kafka.max_message_bytes is {config.max_message_bytes}, but Kafka's topic {name} takes only "
                    f"{allowed} bytes: set its max.message.bytes to {need}, or lower the setting"
                )
        if waiting:
            await asyncio.sleep(0.05)


async def _sizes(admin: Any, names: Iterable[str]) -> list[tuple[int, str, str, int]]:
    """(error code, its words, topic, max.message.bytes) of each topic."""
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name, {"max.message.bytes": ""}) for name in sorted(names)]
    return [
        (code, why or "", name, next((int(value) for key, value, *_ in entries if key == "max.message.bytes"), 0))
        for answer in await admin.describe_configs(wanted)
        for code, why, _kind, name, entries in answer.resources
    ]
