"""Settings of Kafka."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal, TypeAlias

from sdfstream.bus.codec import Compression
from sdfstream.bus.kafka import topic_rules
from sdfstream.bus.kafka.topic_rules import DEFAULT_RULES, TopicRule
from sdfstream.errors import ConfigError
from sdfstream.records.topics import CHECKPOINT, TOPICS

RecordCompression: TypeAlias = Literal["zstd"] | None

SLACK_BYTES: Final = 64 << 10
"""Room for key, headers and the record batch's own bytes around a message of ``max_message_bytes``."""
CHECKPOINT_PARTITIONS: Final = 16
"""Partitions that hold the tasks' notes. The number never changes, since the partition of a task follows from its name
and this; the topic has more where there are more units, but notes lie in these alone."""
NAMES: Final = (*(n for t in TOPICS.values() for n in (t.name, t.dead_letters)), CHECKPOINT.name)
"""Every topic on the brokers, without the prefix: dead letters and checkpoints too."""

Security: TypeAlias = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism: TypeAlias = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]


@dataclass(frozen=True, slots=True)
class Principals:
    """The principals of each role, as brokers name them: ``User:name``, or ``User:CN=…`` of a client's certificate.

    One principal may have several roles; a role without any gets no rights.
    """

    agent: tuple[str, ...] = ("User:sdf-agent",)
    """Agents on the hosts: write raw topics, read commands."""
    stage: tuple[str, ...] = ("User:sdf-stage",)
    """`sdfstream run` with any stage but the archive."""
    archive: tuple[str, ...] = ("User:sdf-archive",)
    reader: tuple[str, ...] = ("User:sdf-reader",)
    """Recorders and foreign tools: read everything, write nothing."""
    operator: tuple[str, ...] = ("User:sdf-operator",)
    """Operators, who approve and undo by ``--bus``."""
    admin: tuple[str, ...] = ("User:sdf-admin",)
    """`sdfstream topics apply`."""
    switches: tuple[str, ...] = ("User:sdf-switches",)
    """`sdfstream switches`: writes rows of ports."""


@dataclass(frozen=True, slots=True)
class KafkaConfig:
    """Access to the brokers, the policy of their topics, and the sizes that all clients must agree on."""

    servers: str = ""
    """``host:port``, several separated by commas. Filled in from ``bus: kafka://…``, the one place to name them."""
    prefix: str = ""
    """Put before the name of every topic, group and transactional id on the brokers, where a cluster is shared."""
    security: Security = "PLAINTEXT"
    ca_file: str = ""
    """PEM of the authorities that vouch for the brokers; empty: those that this machine trusts."""
    cert_file: str = ""
    """PEM of this client's own certificate, where the brokers ask for one."""
    key_file: str = ""
    """PEM of its private key, not encrypted."""
    user: str = ""
    password_file: str = ""
    """File whose first line is the password; it is read at every connection's making, so that it may change."""
    password_env: str = ""
    """Instead of a file: the environment variable that holds the password."""
    mechanism: Mechanism = "SCRAM-SHA-512"
    """SASL mechanism. PLAIN sends the password itself, thus only inside TLS."""
    max_message_bytes: int = 8 << 20
    """The largest message. One setting for producer, topics and consumers: a producer's limit above a topic's fails
    the send, and a consumer's below it waits forever."""
    partitions: int = 1
    """Partitions of the topics partitioned by host: raw ones, derived.owd, .edge, .qp. Messages of one key keep their
    order; above 1 nothing else does. Every other topic has one, but checkpoints have 16 at least."""
    replication: int = 1
    min_insync: int = 0
    """Replicas that must have a message before it counts as written; 0: all but one, and at least one."""
    topics: tuple[TopicRule, ...] = DEFAULT_RULES
    """Retention, by patterns of topic names. The defaults go before these, so name only what differs;
    `sdfstream topics list` shows what comes of it."""
    principals: Principals = Principals()
    create_topics: bool = True
    """Create absent topics at start; without the right to, set it to false and run `sdfstream topics apply`."""
    linger_ms: int = 2
    """Time for which the producer gathers small messages before it sends."""
    compression: Compression = None
    """Compression of Arrow buffers inside a message. Where `record_compression` is possible, that is cheaper and
    smaller."""
    record_compression: RecordCompression = None
    """Compression of whole record batches, by Kafka's client: an agent's 144 rows shrink from 147 to 43 bytes a row for
    half a microsecond each; buffers compressed one by one (`compression`) give 87 bytes for four."""
    request_timeout_ms: int = 40_000
    """After this the producer gives a message up and `publish` raises."""
    stall_s: float = 15.0
    """A consumer that got nothing for so long although the topic went on is restarted."""

    @property
    def rules(self) -> tuple[TopicRule, ...]:
        """The defaults, and what the user says after them."""
        return (*DEFAULT_RULES, *self.topics)

    @property
    def insync(self) -> int:
        """``min.insync.replicas`` of every topic: one broker may be away, where there is one to spare."""
        return self.min_insync or max(1, self.replication - 1)

    def check(self) -> None:
        """Raise `ConfigError` with the path of the key that is wrong."""
        if self.max_message_bytes < 64 << 10 or self.max_message_bytes > 64 << 20:
            raise ConfigError(f"kafka.max_message_bytes is {self.max_message_bytes}; it must be 64 KiB to 64 MiB")
        if self.partitions < 1 or self.replication < 1:
            raise ConfigError("kafka.partitions and kafka.replication must be at least 1")
        if not 0 <= self.min_insync <= self.replication:
            raise ConfigError(f"kafka.min_insync must be 0 to kafka.replication ({self.replication})")
        if self.stall_s <= 0 or self.linger_ms < 0 or self.request_timeout_ms <= 0:
            raise ConfigError("kafka.stall_s, linger_ms and request_timeout_ms must be positive")
        topic_rules.check_rules(self.topics, NAMES, "kafka.topics")
        self._check_principals()
        self._check_security()

    def _check_principals(self) -> None:
        for role in fields(self.principals):
            for i, name in enumerate(getattr(self.principals, role.name)):
                if ":" not in name or name.endswith(":") or name.endswith(":*"):
                    raise ConfigError(f"kafka.principals.{role.name}.{i} must be User:NAME, not {name!r}")

    def _check_security(self) -> None:
        tls, sasl = "SSL" in self.security, self.security.startswith("SASL")
        self._check_tls(tls)
        self._check_sasl(tls, sasl)

    def _check_tls(self, tls: bool) -> None:
        if not tls and (self.ca_file or self.cert_file or self.key_file):
            raise ConfigError(f"kafka.security is {self.security}, which uses no ca_file, cert_file or key_file")
        if bool(self.cert_file) != bool(self.key_file):
            raise ConfigError("kafka.cert_file and kafka.key_file belong together: one of them is missing")

    def _check_sasl(self, tls: bool, sasl: bool) -> None:
        if not sasl and (self.user or self.password_file or self.password_env):
            raise ConfigError(f"kafka.security is {self.security}, which uses no user and no password")
        if sasl and not self.user:
            raise ConfigError(f"kafka.user is missing: kafka.security is {self.security}")
        if sasl and bool(self.password_file) == bool(self.password_env):
            raise ConfigError("give one of kafka.password_file and kafka.password_env: where the password is read from")
        if sasl and not tls and self.mechanism == "PLAIN":
            raise ConfigError("kafka.mechanism PLAIN sends the password itself: kafka.security must be SASL_SSL")
