"""Rights on the brokers: one table of roles, from which access rules (ACLs) and error messages are made.

Every process of ours has one role and needs no other right. Dead letters are written by stages and the archive, which
between them read every topic; any other reader only counts a message that it cannot read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.records.topics import (
    ARCHIVED,
    CHECKPOINT,
    CLOCK,
    COMMAND,
    FROM_AGENTS,
    MESH,
    OUTCOME,
    OVERRIDE,
    PORT,
    TOPICS,
    TOPOLOGY,
)

Resource: TypeAlias = Literal["topic", "group", "transactional_id", "cluster"]
Pattern: TypeAlias = Literal["literal", "prefixed"]

STAGES: Final = ("sync", "sync-edge", "sync-mesh", "workload", "detect", "actuate", "plan")
"""Names of stages, thus of consumer groups; ``<name>/`` begins their transactional ids."""
WATCHERS: Final = ("board", "jobs", "changes", "recorder")
"""Groups of `sdfstream up` on Kafka, beside those of the stages and the archive."""
ALL_NAMES: Final = "sdf."
"""Beginning of every topic's name."""


@dataclass(frozen=True, slots=True)
class Role:
    """Topics, groups and transactional ids of one kind of process; names without the prefix."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Beginnings of the names of its consumer groups."""
    transactions: tuple[str, ...] = ()
    """Beginnings of its transactional ids."""
    reads_all: bool = False
    """Reads every topic of ours, dead letters included."""
    administers: bool = False


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """One access rule that lets: `principal` may do `operation` on what is called so."""

    principal: str
    resource: Resource
    pattern: Pattern
    name: str
    operation: str
    """As Kafka spells it: ``READ``, ``WRITE``, ``DESCRIBE_CONFIGS``, …"""


_TO_AGENTS: Final = (COMMAND, MESH, CLOCK)
_DEAD: Final = tuple(t.dead_letters for t in TOPICS.values())
_BY_STAGES: Final = tuple(n for n, t in TOPICS.items() if t is OUTCOME or (t is not OVERRIDE and t not in FROM_AGENTS))

ROLES: Final[dict[str, Role]] = {
    role.name: role
    for role in (
        Role("agent", tuple(t.name for t in _TO_AGENTS), tuple(t.name for t in FROM_AGENTS), ("agent-",)),
        Role(
            "stage",
            (*TOPICS, CHECKPOINT.name),
            (*_BY_STAGES, *_DEAD, CHECKPOINT.name),
            (*STAGES, *WATCHERS),
            tuple(f"{name}/" for name in STAGES),
        ),
        Role("archive", (*ARCHIVED, CHECKPOINT.name), (*_DEAD, CHECKPOINT.name), ("archive",), ("archive/",)),
        Role("reader", groups=("record-", "reader-"), reads_all=True),
        Role("operator", (OUTCOME.name,), (OVERRIDE.name, TOPOLOGY.name), ("operator-",)),
        # the topic of gnmic is not ours: whoever made it lets this user read it
        Role("switches", writes=(PORT.name,), groups=("switches",)),
        Role("admin", administers=True),
    )
}


def grants(config: KafkaConfig) -> list[Grant]:
    """Every access rule that the roles of ``kafka.principals`` need, once, in order."""
    found = {
        grant
        for role in ROLES.values()
        for principal in getattr(config.principals, role.name)
        for grant in _of_role(role, principal, config.prefix)
    }
    return sorted(found)


def principals(config: KafkaConfig) -> list[str]:
    """All principals that have a role."""
    return sorted({p for role in ROLES for p in getattr(config.principals, role)})


def who(topic: str) -> tuple[list[str], list[str]]:
    """Roles that read, and roles that write, the topic called `topic` (without the prefix)."""
    readers = [r.name for r in ROLES.values() if r.reads_all or topic in r.reads]
    writers = [r.name for r in ROLES.values() if topic in r.writes]
    return readers, writers


def whose_group(group: str) -> list[str]:
    """Roles that a consumer group called `group` (without the prefix) belongs to."""
    return [r.name for r in ROLES.values() if any(group.startswith(g) for g in r.groups)]


def whose_transactions(name: str) -> list[str]:
    """Roles that a transactional id called `name` (without the prefix) belongs to."""
    return [r.name for r in ROLES.values() if any(name.startswith(t) for t in r.transactions)]


def _of_role(role: Role, principal: str, prefix: str) -> Iterator[Grant]:
    for topic in role.reads:
        yield Grant(principal, "topic", "literal", prefix + topic, "READ")
    for topic in role.writes:
        yield Grant(principal, "topic", "literal", prefix + topic, "WRITE")
    for topic in {*role.reads, *role.writes}:
        # to compare sizes at start; to describe the topic itself comes with READ or WRITE
        yield Grant(principal, "topic", "literal", prefix + topic, "DESCRIBE_CONFIGS")
    for group in role.groups:
        yield Grant(principal, "group", "prefixed", prefix + group, "READ")
    for name in role.transactions:
        yield Grant(principal, "transactional_id", "prefixed", prefix + name, "WRITE")
        yield Grant(principal, "transactional_id", "prefixed", prefix + name, "DESCRIBE")
    if role.reads_all:
        for operation in ("READ", "DESCRIBE_CONFIGS"):
            yield Grant(principal, "topic", "prefixed", prefix + ALL_NAMES, operation)
        # every client of ours opens an idempotent producer; without any topic to write this lets it, and no more
        yield Grant(principal, "cluster", "literal", "kafka-cluster", "IDEMPOTENT_WRITE")
    if role.administers:
        for operation in ("CREATE", "ALTER", "ALTER_CONFIGS", "DESCRIBE", "DESCRIBE_CONFIGS"):
            yield Grant(principal, "topic", "prefixed", prefix + ALL_NAMES, operation)
        for operation in ("DESCRIBE", "ALTER"):
            yield Grant(principal, "cluster", "literal", "kafka-cluster", operation)
