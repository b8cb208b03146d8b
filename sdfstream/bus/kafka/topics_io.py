"""Topics on the brokers compared with their policy, and made so: the work behind ``sdfstream topics``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aiokafka.admin import NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

from sdfstream.bus.kafka import denied as kafka_denied
from sdfstream.bus.kafka.admin_io import SETTLE_S, admin_of, create, described
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.topic_policy import Difference, Policy, TopicState, differences, policies
from sdfstream.errors import ConfigError

SET_ON_TOPIC: Final = 1
"""Source of a setting in Kafka's protocol (DYNAMIC_TOPIC_CONFIG): set on this topic itself."""


@dataclass(frozen=True, slots=True)
class Applied:
    """Differences that `apply` found and left."""

    before: list[Difference]
    after: list[Difference]
    """Left: only what cannot be repaired."""


async def compare(config: KafkaConfig) -> tuple[dict[str, TopicState], list[Difference]]:
    """The state of our topics by name on the brokers, and its differences from the policies.

    Raises
    ------
    UnavailableError, ConfigError
        As `admin_io.admin_of`; or a topic may not be looked at.
    """
    wanted = policies(config)
    async with admin_of(config) as admin:
        with mapped("reading the topics"):
            found = await _found(admin, wanted)
    return found, differences(wanted, found)


async def apply(config: KafkaConfig) -> Applied:
    """Create what is absent, change settings that differ, add partitions that lack; nothing is ever taken away.

    Settings of a topic that the policy does not name stay as they are.

    Raises
    ------
    UnavailableError, ConfigError
        As `compare`; or this user may not do it.
    """
    wanted = policies(config)
    async with admin_of(config) as admin:
        with mapped("reading the topics"):
            before = differences(wanted, await _found(admin, wanted))
        await _repair(admin, [d for d in before if d.repairable], {p.name: p for p in wanted})
        with mapped("reading the topics"):
            after = await _settled(admin, wanted)
    return Applied(before, after)


async def _repair(admin: Any, todo: Sequence[Difference], policy_of: Mapping[str, Policy]) -> None:
    """Make the topics so that none of the differences `todo` is left."""
    with mapped("creating topics"):
        absent = [policy_of[d.name] for d in todo if d.what == "absent"]
        if absent and (denied := await create(admin, absent)):
            raise ConfigError(f"Kafka, creating topics: {kafka_denied.of_topics(denied[:1])}")
    with mapped("adding partitions"):
        grown = {d.name: NewPartitions(total_count=int(d.want)) for d in todo if d.what == "partitions"}
        if grown:
            await admin.create_partitions(grown)
    with mapped("changing settings of topics"):
        changed: dict[str, dict[str, str]] = {}
        for d in todo:
            if d.what == "setting":
                changed.setdefault(d.name, {})[d.key] = d.want
        if changed:
            await _change(admin, changed)


async def _settled(admin: Any, wanted: Sequence[Policy]) -> list[Difference]:
    """The differences once every broker knows the changes."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + SETTLE_S
    while True:
        left = differences(wanted, await _found(admin, wanted))
        if not any(d.repairable for d in left) or clock.time() > deadline_s:
            return left
        await asyncio.sleep(0.1)


async def _found(admin: Any, wanted: Sequence[Policy]) -> dict[str, TopicState]:
    """The topics on the brokers. All are listed, not ours by name: asking for an absent one may create it."""
    there = {t["topic"]: t["partitions"] for t in await admin.describe_topics()}
    found = {}
    for name, (code, why, settings) in (await described(admin, [p.name for p in wanted])).items():
        if code == UnknownTopicOrPartitionError.errno or (not code and name not in there):
            continue  # absent; or just made, and not known everywhere yet
        if code:
            raise for_code(code)(name, why)
        replicas = min((len(p["replicas"]) for p in there[name]), default=0)
        found[name] = TopicState(len(there[name]), replicas, {key: value for key, (value, _) in settings.items()})
    return found


async def _change(admin: Any, changed: Mapping[str, Mapping[str, str]]) -> None:
    """Set some settings of topics. The request replaces all settings of a topic, so earlier ones go along."""
    given = {
        name: {key: value for key, (value, source) in settings.items() if source == SET_ON_TOPIC}
        for name, (_, _, settings) in (await described(admin, changed)).items()
    }
    wanted = [
        ConfigResource(ConfigResourceType.TOPIC, name, {**given.get(name, {}), **settings})
        for name, settings in changed.items()
    ]
    for answer in await admin.alter_configs(wanted):
        for code, why, _kind, name in answer.resources:
            if code:
                raise for_code(code)(name, why or "")
