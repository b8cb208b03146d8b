"""Who may do what: the roles against what stages, agents and verbs really read and write."""

from __future__ import annotations

import pytest
from aiokafka import errors as kafka

from sdfstream import pipeline
from sdfstream.board.board import Board
from sdfstream.board.jobs import JobBoard
from sdfstream.bus.kafka import roles
from sdfstream.bus.kafka.config import NAMES, KafkaConfig, Principals
from sdfstream.bus.kafka.errors_io import mapped
from sdfstream.bus.kafka.roles import ROLES, Grant, grants
from sdfstream.cli.run import STAGES as VERBS_STAGES
from sdfstream.errors import ConfigError
from sdfstream.plan.config import PlanConfig
from sdfstream.records.topics import ARCHIVED, CHECKPOINT, COMMAND, OUTCOME, OVERRIDE, PROBE, TOPICS
from sdfstream.settings import Settings


def test_stages_are_those_of_the_pipeline() -> None:
    chosen = Settings(plan=PlanConfig(mesh="auto"))
    every = [*pipeline.stages(chosen), *pipeline.split_sync(chosen)]
    assert {s.name for s in every} == set(roles.STAGES)
    assert set(VERBS_STAGES) == {*roles.STAGES, "archive"}
    assert {s.name for s in pipeline.STAGES} == set(roles.STAGES)


def test_a_stage_may_read_and_write_what_it_does() -> None:
    stage = ROLES["stage"]
    chosen = Settings(plan=PlanConfig(mesh="auto"))
    reads = {t for s in [*pipeline.stages(chosen), *pipeline.split_sync(chosen)] for t in s.reads}
    reads |= {*Board.reads, *JobBoard.reads}
    assert reads <= set(stage.reads)
    assert pipeline.WRITTEN | {CHECKPOINT.name} | {t.dead_letters for t in TOPICS.values()} == set(stage.writes)


def test_every_topic_that_can_be_misread_has_a_role_that_writes_its_dead_letters() -> None:
    for topic in TOPICS.values():
        readers = [r for r in ROLES.values() if topic.name in r.reads]
        assert any(topic.dead_letters in r.writes for r in readers), topic.name


def test_the_archive_reads_what_it_keeps() -> None:
    assert set(ROLES["archive"].reads) == {*ARCHIVED, CHECKPOINT.name}


def test_an_agent_cannot_command_and_a_reader_cannot_write() -> None:
    agent = ROLES["agent"].writes
    assert {t for t in TOPICS if t.startswith("sdf.raw.")} <= set(agent)
    assert not {COMMAND.name, OVERRIDE.name, CHECKPOINT.name} & set(agent)
    assert not [t for t in agent if t.startswith(("sdf.derived.", "sdf.event.")) or t.endswith(".dlq")]
    by_operation: dict[str, set[str]] = {}
    for grant in grants(KafkaConfig()):
        by_operation.setdefault(grant.principal, set()).add(grant.operation)
    assert by_operation["User:sdf-reader"] == {"READ", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE"}
    assert not {"READ", "WRITE"} & by_operation["User:sdf-admin"]
    assert not any("DELETE" in operations or "ALL" in operations for operations in by_operation.values())


def test_grants_carry_the_prefix_and_the_principals() -> None:
    config = KafkaConfig(prefix="lab.", principals=Principals(agent=("User:CN=h1", "User:CN=h2"), reader=()))
    found = grants(config)
    assert len(found) == len(set(found))
    assert all(g.resource == "cluster" or g.name.startswith("lab.") for g in found)
    for host in ("User:CN=h1", "User:CN=h2"):
        assert Grant(host, "topic", "literal", f"lab.{PROBE.name}", "WRITE") in found
    assert Grant("User:sdf-stage", "transactional_id", "prefixed", "lab.sync-edge/", "WRITE") in found
    assert Grant("User:sdf-stage", "group", "prefixed", "lab.detect", "READ") in found
    assert "User:sdf-reader" not in {g.principal for g in found}


def test_one_principal_with_several_roles_has_the_rights_of_all() -> None:
    one = ("User:sdf",)
    config = KafkaConfig(principals=Principals(*[one] * len(ROLES)))
    assert {g.principal for g in grants(config)} == {"User:sdf"}
    rights = {(g.resource, g.name, g.operation) for g in grants(config)}
    assert rights == {(g.resource, g.name, g.operation) for g in grants(KafkaConfig())}


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        (kafka.TopicAuthorizationFailedError(PROBE.name), "topic sdf.raw.probe.v1 may not be used by this user (roles"),
        (kafka.TopicAuthorizationFailedError({f"lab.{OVERRIDE.name}"}), "roles that write it: operator;"),
        (kafka.TopicAuthorizationFailedError(PROBE.dead_letters), "roles that write it: stage, archive;"),
        (kafka.TopicAuthorizationFailedError("orders"), "topic orders may not be used by this user (none of ours)"),
        (kafka.GroupAuthorizationFailedError("lab.sync-edge.members"), "group lab.sync-edge.members may not be used"),
        (kafka.GroupAuthorizationFailedError("record-async"), "(role reader)"),
        (kafka.GroupAuthorizationFailedError("who"), "(role none of ours)"),
        (kafka.TransactionalIdAuthorizationFailed("lab.detect/0of1"), "transactional id lab.detect/0of1 may not be"),
        (kafka.TransactionalIdAuthorizationFailed("archive/0of1"), "(role archive)"),
        (kafka.ClusterAuthorizationFailedError(), "role admin"),
    ],
)
def test_a_refusal_says_what_and_whose(theirs: Exception, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught, mapped("publishing"):
        raise theirs
    assert str(caught.value).startswith("Kafka, publishing: ")
    assert sentence in str(caught.value)
    assert "topics apply --acls" in str(caught.value)


def test_who_is_answered_for_every_topic() -> None:
    for name in NAMES:
        readers, writers = roles.who(name)
        assert readers
        assert writers
    assert roles.who(OUTCOME.name)[1] == ["agent", "stage"]
