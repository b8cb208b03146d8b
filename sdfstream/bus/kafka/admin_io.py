"""Topics on the brokers: created by their policy, and checked before any message is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from sdfstream.bus.kafka import diagnose_io
from sdfstream.bus.kafka.config import SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka.errors_io import RateLimit, mapped
from sdfstream.bus.kafka.security_io import client_settings
from sdfstream.bus.kafka.topic_policy import Policy, policies
from sdfstream.errors import ConfigError, UnavailableError

SETTLE_S: Final = 15.0
"""Longest time until a new topic, or a broker that just started, is known to the broker asked."""
_DENIED: Final = (TopicAuthorizationFailedError.errno, ClusterAuthorizationFailedError.errno)


@asynccontextmanager
async def admin_of(config: KafkaConfig) -> AsyncIterator[Any]:
    """An admin client, while the block runs.

    Raises
    ------
    UnavailableError
        No broker answers, or the connection breaks in the middle.
    ConfigError
        The brokers refuse this client, or fail verification themselves; the message says why.
    """
    RateLimit.install()
    admin = AIOKafkaAdminClient(**client_settings(config), request_timeout_ms=config.request_timeout_ms)
    doing = f"looking for a broker at {config.servers}"
    try:
        with mapped(doing):
            try:
                await admin.start()
                yield admin
            except (KafkaError, UnavailableError) as error:
                theirs = error.__cause__ if isinstance(error, UnavailableError) else error
                if not isinstance(theirs, KafkaConnectionError | NodeNotReadyError):
                    raise
                brokers = [(b.host, b.port) for b in admin._client.cluster.brokers()]
                raise await diagnose_io.diagnose(config, doing, brokers) from error
    finally:
        await admin.close()


async def prepare(config: KafkaConfig) -> str:
    """Create the topics that are absent (where allowed) and check that all take messages of our largest size.

    Topics that this user may not even describe are left out: it needs none of them, or gets an error when it uses one.
    Returns the id that the cluster gave itself.

    Raises
    ------
    UnavailableError
        No broker answers.
    ConfigError
        A topic takes only smaller messages, is absent, or may not be created; or no topic may be used at all.
    """
    async with admin_of(config) as admin:
        with mapped("creating topics"):
            have = set(await admin.list_topics())
            absent = [p for p in policies(config) if p.name not in have]
            denied: list[str] = []
            if absent and config.create_topics:
                denied = await create(admin, absent)
        with mapped("reading the topics' settings"):
            await _check_sizes(admin, config, SETTLE_S if config.create_topics and len(denied) < len(absent) else 0.0)
        with mapped("asking for the cluster's id"):
            return str((await admin.describe_cluster()).get("cluster_id") or "")


async def create(admin: Any, wanted: Sequence[Policy]) -> list[str]:
    """Create topics by their policies; existing ones stay as they are. Returns names that may not be created."""
    topics = [NewTopic(p.name, p.partitions, p.replication, topic_configs=dict(p.settings)) for p in wanted]
    denied = []
    # errors are in the answer; none is raised
    answer = await admin.create_topics(topics)
    for name, code, *why in answer.topic_errors:
        if code in _DENIED:
            denied.append(name)
        elif code and for_code(code) is not TopicAlreadyExistsError:
            raise for_code(code)(f"{name}: {' '.join(str(w) for w in why)}")
    return denied


async def described(
    admin: Any, names: Iterable[str], keys: Iterable[str] | None = None
) -> dict[str, tuple[int, str, Mapping[str, tuple[str, int]]]]:
    """{topic: (error code, its words, {setting: (value, where it comes from)})}; `keys` None: all settings."""
    asked = None if keys is None else dict.fromkeys(keys, "")
    wanted = [ConfigResource(ConfigResourceType.TOPIC, name, asked) for name in sorted(names)]
    return {
        name: (code, why or "", {key: (value or "", source) for key, value, _, source, *_ in entries})
        for answer in await admin.describe_configs(wanted)
        for code, why, _kind, name, entries in answer.resources
    }


async def _check_sizes(admin: Any, config: KafkaConfig, settle_s: float) -> None:
    """Every topic takes our largest message; one just created may be unknown for up to `settle_s`."""
    need = config.max_message_bytes + SLACK_BYTES
    deadline_s = asyncio.get_running_loop().time() + settle_s
    names = {p.name for p in policies(config)}
    waiting, usable = set(names), 0
    while waiting:
        for name, (code, why, settings) in (await described(admin, waiting, ["max.message.bytes"])).items():
            if code == UnknownTopicOrPartitionError.errno and asyncio.get_running_loop().time() < deadline_s:
                continue
            waiting.discard(name)
            if code in _DENIED:
                continue
            if code:
                raise ConfigError(
                    f"Kafka's topic {name} cannot be used: {for_code(code).__name__} {why}; "
                    "`sdfstream topics apply` makes topics as they must be"
                )
            usable += 1
            allowed = int(settings.get("max.message.bytes", ("0", 0))[0])
            if allowed < need:
                raise ConfigError(
                    f"kafka.max_message_bytes is {config.max_message_bytes}, but Kafka's topic {name} takes only "
                    f"{allowed} bytes: set its max.message.bytes to {need}, or lower the setting"
                )
        if waiting:
            await asyncio.sleep(0.05)
    if not usable:
        who = config.user or config.cert_file or "an anonymous client"
        raise ConfigError(
            f"Kafka's topics {config.prefix}sdf.* may not be used by {who}: `sdfstream topics apply --acls` gives "
            "roles their rights"
        )
