"""The policy of every topic on the brokers, from the vocabulary and the settings; and differences from it.

====================  ===========================================================================================
partitions            ``kafka.partitions`` for topics partitioned by host (`SPREAD`), one a unit and at least 16
                      for checkpoints, else 1
retention             by rules (`topic_rules`); a compacted topic keeps the last message of every key
segments              an eighth of what is kept, since brokers delete and compact whole segments only; checkpoints in
                      small ones that are compacted soon, so that a restart reads little
time stamps           the brokers' own (LogAppendTime), since a producer's clock may be hours off
largest message       ``kafka.max_message_bytes`` and room around it, twice that for dead letters
replicas in sync      ``kafka.min_insync``; a replica that was not in sync never becomes leader
====================  ===========================================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sdfstream.bus import dead_letters
from sdfstream.bus.kafka.config import CHECKPOINT_PARTITIONS, NAMES, SLACK_BYTES, KafkaConfig
from sdfstream.bus.kafka.topic_rules import FOR_EVER, GIB, ruled
from sdfstream.records.topics import CHECKPOINT, EDGE, OWD, PROBE, QP_WINDOW, TOPICS

MS_PER_H: Final = 3_600_000
MINUTE_MS: Final = 60_000
SPREAD: Final = frozenset(
    t.name for t in TOPICS.values() if t.name.startswith("sdf.raw.") or t in (OWD, EDGE, QP_WINDOW)
)
"""Topics partitioned by host, too large for one process."""
SEGMENTS: Final = 8
"""Segments that retention is cut into: what is kept may exceed it by one of them."""

What: TypeAlias = Literal["absent", "partitions", "replication", "setting"]


@dataclass(frozen=True, slots=True)
class Policy:
    """Required partitions, replication and settings of one topic."""

    topic: str
    """Without the prefix."""
    name: str
    """On the brokers."""
    partitions: int
    replication: int
    settings: Mapping[str, str]
    """Kafka's names and values."""

    @property
    def most_bytes(self) -> int | None:
        """Disk that the topic can come to occupy on all brokers together; None: no limit is set."""
        retained, segment = int(self.settings.get("retention.bytes", FOR_EVER)), int(self.settings["segment.bytes"])
        if retained == FOR_EVER:
            return None
        return (retained + segment) * self.partitions * self.replication


@dataclass(frozen=True, slots=True)
class TopicState:
    """Partitions, replication and settings of one topic on the brokers."""

    partitions: int
    replication: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference of a topic from its policy."""

    name: str
    """On the brokers."""
    what: What
    key: str
    """Kafka's name of the setting; else as `what`."""
    have: str
    want: str
    repairable: bool = True
    """`apply` can make it so."""
    note: str = ""
    """Consequence, or what the operator can do."""


def policies(config: KafkaConfig) -> list[Policy]:
    """The policies of all topics under `config`, in the order of `NAMES`."""
    return [policy(config, name) for name in NAMES]


def policy(config: KafkaConfig, topic: str) -> Policy:
    """The policy of `topic` (without the prefix) under `config`."""
    rule = ruled(topic, config.rules)
    settings = {
        "max.message.bytes": str(_largest(config, topic)),
        "message.timestamp.type": "LogAppendTime",
        "min.insync.replicas": str(config.insync),
        "unclean.leader.election.enable": "false",
    }
    if topic == CHECKPOINT.name:
        settings |= _checkpoints(_largest(config, topic))
    elif topic in TOPICS and TOPICS[topic].compacted:
        settings |= _compacted(_largest(config, topic))
    else:
        settings |= _deleted(_largest(config, topic), rule.retention_h, rule.retention_bytes)
    return Policy(
        topic,
        config.prefix + topic,
        rule.partitions or _partitions(config, topic),
        config.replication,
        settings,
    )


def differences(wanted: Sequence[Policy], found: Mapping[str, TopicState]) -> list[Difference]:
    """Differences of the topics `found` (by name on the brokers) from the policies `wanted`."""
    return [d for one in wanted for d in _of_topic(one, found.get(one.name))]


def what_growth_means(topic: str, have: int, want: int) -> str:
    """What more partitions of `topic` mean for its readers."""
    if topic == CHECKPOINT.name:
        if have >= CHECKPOINT_PARTITIONS:
            return "room for more units; notes stay where they are"
        return "notes are looked for elsewhere: every stage, the archive too, begins its state anew"
    moved = "hosts" if topic in SPREAD else "keys"
    units = f"; sync-edge has {want} units instead of {have} and begins its state anew" if topic == PROBE.name else ""
    return (
        f"{moved} move between partitions, so their messages keep their order only from here on{units}; stages read "
        "new partitions, whole, once they are restarted"
    )


def _of_topic(wanted: Policy, found: TopicState | None) -> Iterator[Difference]:
    if found is None:
        yield Difference(wanted.name, "absent", "absent", "absent", f"{wanted.partitions} partitions")
        return
    if found.partitions < wanted.partitions:
        yield Difference(
            wanted.name, "partitions", "partitions", str(found.partitions), str(wanted.partitions),
            note=what_growth_means(wanted.topic, found.partitions, wanted.partitions),
        )  # fmt: skip
    elif found.partitions > wanted.partitions and wanted.topic != CHECKPOINT.name:
        yield Difference(
            wanted.name, "partitions", "partitions", str(found.partitions), str(wanted.partitions), repairable=False,
            note="partitions cannot be taken away: let kafka.partitions, or a rule of kafka.topics, say what is there",
        )  # fmt: skip
    if found.replication != wanted.replication:
        yield Difference(
            wanted.name, "replication", "replication", str(found.replication), str(wanted.replication),
            repairable=False, note="replicas are moved with kafka-reassign-partitions.sh, not by this command",
        )  # fmt: skip
    for key, want in wanted.settings.items():
        have = found.settings.get(key, "")
        if have != want:
            yield Difference(wanted.name, "setting", key, have, want)


def _partitions(config: KafkaConfig, topic: str) -> int:
    if topic == CHECKPOINT.name:
        return max(CHECKPOINT_PARTITIONS, policy(config, PROBE.name).partitions)
    return config.partitions if topic in SPREAD else 1


def _largest(config: KafkaConfig, topic: str) -> int:
    return config.max_message_bytes + SLACK_BYTES * (2 if dead_letters.is_dead(topic) else 1)


def _deleted(largest: int, retention_h: float | None, retention_bytes: int | None) -> dict[str, str]:
    """Deleted by age and size."""
    assert retention_h is not None, "the default rules name one for every topic"
    assert retention_bytes is not None
    forever = retention_h == FOR_EVER
    retention_ms = FOR_EVER if forever else round(retention_h * MS_PER_H)
    segment = GIB if retention_bytes == FOR_EVER else retention_bytes // SEGMENTS
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "retention.bytes": str(retention_bytes),
        "segment.ms": str(7 * 24 * MS_PER_H if forever else max(MINUTE_MS, retention_ms // SEGMENTS)),
        "segment.bytes": str(_segment(segment, largest)),
    }


def _compacted(largest: int) -> dict[str, str]:
    """The last message of every key; a late reader has a day to read a deletion."""
    return {
        "cleanup.policy": "compact",
        "segment.ms": str(MS_PER_H),
        "segment.bytes": str(_segment(64 << 20, largest)),
        "min.cleanable.dirty.ratio": "0.2",
        "max.compaction.lag.ms": str(6 * MS_PER_H),
        "delete.retention.ms": str(24 * MS_PER_H),
    }


def _checkpoints(largest: int) -> dict[str, str]:
    """As `_compacted`, sooner: a stage that starts reads every record that is not compacted yet."""
    return {
        "cleanup.policy": "compact",
        "segment.ms": str(10 * MINUTE_MS),
        "segment.bytes": str(_segment(32 << 20, largest)),
        "min.cleanable.dirty.ratio": "0.1",
        "max.compaction.lag.ms": str(10 * MINUTE_MS),
        "delete.retention.ms": str(MS_PER_H),
    }


def _segment(wanted: int, largest: int) -> int:
    """A segment must hold two of the largest messages, and brokers allow none above 1 GiB or below 1 MiB."""
    return min(GIB, max(wanted, 2 * largest, 1 << 20))
