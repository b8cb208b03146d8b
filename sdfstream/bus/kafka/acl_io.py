"""Access rules (ACLs) on the brokers: compared with those of the roles, and repaired.

aiokafka's admin client has no calls for them, so this, and nothing else, needs confluent-kafka (the extra ``acl``).
It blocks: call it outside the event loop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.roles import Grant, grants, principals
from sdfstream.bus.kafka.security_io import librdkafka_settings
from sdfstream.errors import BusError, ConfigError, SdfError, UnavailableError

TIMEOUT_S: Final = 20.0
ANY_HOST: Final = "*"
_RESOURCES: Final = {"topic": "TOPIC", "group": "GROUP", "transactional_id": "TRANSACTIONAL_ID", "cluster": "BROKER"}
"""Our names → librdkafka's."""


@dataclass(frozen=True, slots=True)
class AclState:
    """Differences between the rights that the roles' principals have and need."""

    missing: list[Grant] = field(default_factory=list)
    extra: list[Grant] = field(default_factory=list)
    """More than their roles need."""
    odd: list[str] = field(default_factory=list)
    """Rules that forbid, or that hold for one host only: a person's work, left alone."""

    @property
    def as_needed(self) -> bool:
        """Whether no right is missing and none is too much."""
        return not (self.missing or self.extra or self.odd)


def compare(config: KafkaConfig) -> AclState:
    """Compare the rights on the brokers with the roles'.

    Raises
    ------
    ConfigError
        confluent-kafka is not installed, the brokers check no access rules, or this user may not see them.
    UnavailableError
        The brokers do not answer.
    """
    with _Admin(config) as admin:
        return admin.state()


def apply(config: KafkaConfig, *, prune: bool) -> tuple[AclState, AclState]:
    """Give the roles what they lack, with `prune` take what is too much; the state before and after.

    Errors as `compare`.
    """
    with _Admin(config) as admin:
        before = admin.state()
        admin.create(before.missing)
        if prune:
            admin.delete(before.extra)
        deadline_s = time.monotonic() + TIMEOUT_S
        # rules spread from the controller to the broker we ask
        while (after := admin.state()).missing or (prune and after.extra):
            if time.monotonic() > deadline_s:
                break
            time.sleep(0.1)
        return before, after


class _Admin:
    """librdkafka's admin client, for access rules only."""

    def __init__(self, config: KafkaConfig) -> None:
        try:
            import confluent_kafka
            from confluent_kafka import admin
        except ImportError as error:
            raise ConfigError(
                "access rules need the package confluent-kafka: pip install 'sdfstream[acl]', or leave --acls out and "
                "set them with the brokers' own kafka-acls.sh (docs/kafka.md has the table)"
            ) from error
        self._error: Any = confluent_kafka.KafkaException
        self._codes: Any = confluent_kafka.KafkaError
        self._kafka: Any = admin
        self._config = config
        # what goes wrong comes back as an error; librdkafka would print it to stderr besides
        quiet = {"log_level": 0, "socket.timeout.ms": round(TIMEOUT_S * 1000)}
        self._admin: Any = admin.AdminClient(librdkafka_settings(config) | quiet)

    def __enter__(self) -> _Admin:
        return self

    def __exit__(self, *_: object) -> None:
        self._admin = None

    def state(self) -> AclState:
        needed = set(grants(self._config))
        held: set[Grant] = set()
        odd: list[str] = []
        for principal in principals(self._config):
            for binding in self._of(principal):
                grant = _grant(binding)
                if grant is None or binding.permission_type.name != "ALLOW" or binding.host != ANY_HOST:
                    odd.append(_words(binding))
                else:
                    held.add(grant)
        if not held and not odd:
            self._may()
        return AclState(sorted(needed - held), sorted(self._ours(held - needed)), sorted(odd))

    def _may(self) -> None:
        """Raise when this user may not see access rules, which librdkafka shows as if there were none.

        Deleting a rule that does not exist needs the same right, and there the refusal is reported.
        """
        k = self._kafka
        nothing = k.AclBindingFilter(
            k.ResourceType.TOPIC, "no such topic", k.ResourcePatternType.LITERAL, "User:nobody at all", ANY_HOST,
            k.AclOperation.READ, k.AclPermissionType.ALLOW,
        )  # fmt: skip
        self._wait(self._admin.delete_acls([nothing], request_timeout=TIMEOUT_S).values())

    def create(self, wanted: Iterable[Grant]) -> None:
        bindings = [self._binding(g) for g in wanted]
        if bindings:
            self._wait(self._admin.create_acls(bindings, request_timeout=TIMEOUT_S).values())

    def delete(self, unwanted: Iterable[Grant]) -> None:
        filters = [self._binding(g, self._kafka.AclBindingFilter) for g in unwanted]
        if filters:
            self._wait(self._admin.delete_acls(filters, request_timeout=TIMEOUT_S).values())

    def _ours(self, held: Iterable[Grant]) -> list[Grant]:
        """The rights of `held` on this installation's names, by its prefix; a cluster may carry others."""
        return [g for g in held if g.resource == "cluster" or g.name == "*" or g.name.startswith(self._config.prefix)]

    def _of(self, principal: str) -> list[Any]:
        k = self._kafka
        everything = k.AclBindingFilter(
            k.ResourceType.ANY, None, k.ResourcePatternType.ANY, principal, None, k.AclOperation.ANY,
            k.AclPermissionType.ANY,
        )  # fmt: skip
        (found,) = self._wait([self._admin.describe_acls(everything, request_timeout=TIMEOUT_S)])
        return list(found)

    def _binding(self, grant: Grant, kind: Any = None) -> Any:
        k = self._kafka
        return (kind or k.AclBinding)(
            k.ResourceType[_RESOURCES[grant.resource]],
            grant.name,
            k.ResourcePatternType[grant.pattern.upper()],
            grant.principal,
            ANY_HOST,
            k.AclOperation[grant.operation],
            k.AclPermissionType.ALLOW,
        )

    def _wait(self, futures: Iterable[Any]) -> list[Any]:
        try:
            return [future.result(TIMEOUT_S + 5) for future in futures]
        except self._error as error:
            raise self._ours_of(error.args[0]) from error
        except TimeoutError as error:
            raise UnavailableError(f"Kafka, access rules: no answer from {self._config.servers}") from error

    def _ours_of(self, error: Any) -> SdfError:
        code, said = error.code(), error.str()
        if code == self._codes.SECURITY_DISABLED:
            return ConfigError(
                "the brokers judge by no access rules: set authorizer.class.name on them (docs/kafka.md), or leave "
                "--acls out"
            )
        if code == self._codes.CLUSTER_AUTHORIZATION_FAILED:
            who = self._config.user or "this client"
            return ConfigError(f"Kafka: {who} may not see or set access rules (role admin, or a superuser)")
        if code in (self._codes._TIMED_OUT, self._codes._TRANSPORT, self._codes._ALL_BROKERS_DOWN):
            return UnavailableError(f"Kafka, access rules: {said}")
        return BusError(f"Kafka, access rules: {error.name()}: {said[:300]}")


def _grant(binding: Any) -> Grant | None:
    """`binding` in our words; None where we have none."""
    resource = {theirs: ours for ours, theirs in _RESOURCES.items()}.get(binding.restype.name)
    pattern = binding.resource_pattern_type.name.lower()
    if resource is None or pattern not in ("literal", "prefixed"):
        return None
    return Grant(binding.principal, resource, pattern, binding.name, binding.operation.name)  # type: ignore[arg-type]


def _words(binding: Any) -> str:
    kind, pattern = binding.restype.name.lower(), binding.resource_pattern_type.name.lower()
    can = "may" if binding.permission_type.name == "ALLOW" else "may not"
    return (
        f"{binding.principal} {can} {binding.operation.name} {kind} {pattern} {binding.name} from host {binding.host}"
    )
