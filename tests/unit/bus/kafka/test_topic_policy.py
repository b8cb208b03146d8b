"""What topics must be like: rules, the table, and what differs; no broker needed."""

from __future__ import annotations

import doctest
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.bus.kafka import denied, topic_rules, topics_text
from sdfstream.bus.kafka.config import CHECKPOINT_PARTITIONS, NAMES, KafkaConfig
from sdfstream.bus.kafka.topic_policy import SPREAD, Policy, TopicState, differences, policies, policy
from sdfstream.bus.kafka.topic_rules import DEFAULT_RULES, GIB, TopicRule, ruled
from sdfstream.cli import main
from sdfstream.errors import ConfigError
from sdfstream.records.topics import CHECKPOINT, CLOCK, EDGE, JOB, OWD, PROBE, QP_WINDOW, TOPICS

H_MS = 3_600_000


@pytest.mark.parametrize("module", [topic_rules, denied, topics_text])
def test_examples(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_every_topic_has_a_retention_by_the_defaults_alone() -> None:
    for name in NAMES:
        rule = ruled(name, DEFAULT_RULES)
        assert name == CHECKPOINT.name or None not in (rule.retention_h, rule.retention_bytes), name


def test_the_last_rule_that_names_a_value_decides() -> None:
    config = KafkaConfig(topics=(TopicRule("sdf.raw.*", retention_h=2), TopicRule(PROBE.name, retention_bytes=GIB)))
    probe, port = policy(config, PROBE.name).settings, policy(config, "sdf.raw.port.v1").settings
    assert (probe["retention.ms"], probe["retention.bytes"]) == (str(2 * H_MS), str(GIB))
    assert (port["retention.ms"], port["retention.bytes"]) == (str(2 * H_MS), str(16 * GIB))


def test_dead_letters_go_by_rules_of_their_own() -> None:
    config = KafkaConfig(topics=(TopicRule("sdf.raw.*", retention_h=2), TopicRule("sdf.event.*.dlq", retention_h=1)))
    assert policy(config, PROBE.dead_letters).settings["retention.ms"] == str(7 * 24 * H_MS)
    assert policy(config, "sdf.event.finding.v1.dlq").settings["retention.ms"] == str(H_MS)
    assert policy(config, "sdf.event.finding.v1").settings["retention.ms"] == str(30 * 24 * H_MS)


def test_a_printed_configuration_means_what_it_meant() -> None:
    """The defaults stand before a user's rules, so printing them and reading them back changes nothing."""
    assert policies(KafkaConfig(topics=())) == policies(KafkaConfig(topics=DEFAULT_RULES))


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (TopicRule("sdf.row.*"), r"kafka\.topics\.0\.match: no topic is called like 'sdf\.row\.\*'"),
        (TopicRule("*", partitions=0), r"kafka\.topics\.0\.partitions must be at least 1"),
        (TopicRule("*", retention_h=0), r"kafka\.topics\.0\.retention_h"),
        (TopicRule("*", retention_h=-2), r"kafka\.topics\.0\.retention_h"),
        (TopicRule("*", retention_h=float("nan")), r"kafka\.topics\.0\.retention_h"),
        (TopicRule("*", retention_bytes=1000), r"kafka\.topics\.0\.retention_bytes"),
    ],
)
def test_a_rule_that_cannot_work_names_its_key(rule: TopicRule, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        KafkaConfig(topics=(rule,)).check()


def test_partitions_are_for_what_is_dealt_out_by_host() -> None:
    spread = {t for t in NAMES if t.startswith("sdf.raw.") and not t.endswith(".dlq")}
    assert spread | {OWD.name, EDGE.name, QP_WINDOW.name} == SPREAD
    found = {p.topic: p.partitions for p in policies(KafkaConfig(partitions=6))}
    assert {t for t, n in found.items() if n == 6} == SPREAD
    assert {t for t, n in found.items() if n not in (1, 6)} == {CHECKPOINT.name}


@pytest.mark.parametrize(("partitions", "checkpoints"), [(1, CHECKPOINT_PARTITIONS), (24, 24)])
def test_checkpoints_have_room_for_every_unit(partitions: int, checkpoints: int) -> None:
    """Sync-edge has as many units as its raw topic has partitions, and each needs a place on the checkpoint topic."""
    assert policy(KafkaConfig(partitions=partitions), CHECKPOINT.name).partitions == checkpoints
    by_rule = KafkaConfig(topics=(TopicRule(PROBE.name, partitions=partitions),))
    assert policy(by_rule, CHECKPOINT.name).partitions == checkpoints


@pytest.mark.parametrize(("replication", "insync"), [(1, "1"), (2, "1"), (3, "2"), (5, "4")])
def test_one_broker_may_be_away_where_there_is_one_to_spare(replication: int, insync: str) -> None:
    assert {p.settings["min.insync.replicas"] for p in policies(KafkaConfig(replication=replication))} == {insync}
    assert policies(KafkaConfig(replication=replication, min_insync=1))[0].settings["min.insync.replicas"] == "1"


def test_the_table() -> None:
    found = {p.topic: p.settings for p in policies(KafkaConfig())}
    assert {s["message.timestamp.type"] for s in found.values()} == {"LogAppendTime"}
    assert {s["unclean.leader.election.enable"] for s in found.values()} == {"false"}
    compacted = {t for t, s in found.items() if s["cleanup.policy"] == "compact"}
    assert compacted == {t.name for t in TOPICS.values() if t.compacted} | {CHECKPOINT.name}
    assert not any("retention.ms" in found[t] for t in compacted)
    assert int(found[CHECKPOINT.name]["segment.bytes"]) <= 32 << 20
    assert int(found[CHECKPOINT.name]["segment.ms"]) < int(found[JOB.name]["segment.ms"])
    assert found[PROBE.name]["segment.ms"] == str(6 * H_MS // 8)


sizes = st.one_of(st.just(-1), st.integers(1 << 20, 1 << 50))
hours = st.one_of(st.just(-1.0), st.floats(0.1, 1e6))


@given(st.integers(64 << 10, 64 << 20), hours, sizes, st.integers(1, 5), st.integers(1, 64))
def test_settings_are_ones_that_brokers_take(
    message: int, retention_h: float, retention: int, replicas: int, n: int
) -> None:
    config = KafkaConfig(
        max_message_bytes=message, partitions=n, replication=replicas,
        topics=(
            TopicRule("*", retention_h=retention_h, retention_bytes=retention),
            TopicRule("*.dlq", None, retention_h, retention),
        ),
    )  # fmt: skip
    config.check()
    for p in policies(config):
        largest, segment = int(p.settings["max.message.bytes"]), int(p.settings["segment.bytes"])
        assert 2 * largest <= segment <= GIB
        assert largest > message
        assert int(p.settings["segment.ms"]) >= 60_000 or int(p.settings["segment.ms"]) == 7 * 24 * H_MS
        assert 1 <= int(p.settings["min.insync.replicas"]) <= p.replication
        assert (p.most_bytes is None) == ("retention.bytes" not in p.settings or retention == -1)


def there(p: Policy) -> TopicState:
    return TopicState(p.partitions, p.replication, {**p.settings, "compression.type": "producer"})


def test_what_is_as_it_must_be_differs_in_nothing() -> None:
    wanted = policies(KafkaConfig(partitions=3, prefix="x."))
    assert differences(wanted, {p.name: there(p) for p in wanted}) == []


@given(st.data())
def test_whatever_is_changed_is_found_and_nothing_else(data: st.DataObject) -> None:
    wanted = policies(KafkaConfig(partitions=3, replication=2))
    found = {p.name: there(p) for p in wanted}
    changed: set[tuple[str, str]] = set()
    for p in data.draw(st.lists(st.sampled_from(wanted), max_size=5, unique_by=lambda p: p.name)):
        what = data.draw(st.sampled_from(["absent", "more", "fewer", "replication", *p.settings]))
        now = found[p.name]
        if what == "absent":
            del found[p.name]
            changed.add((p.name, "absent"))
        elif what == "more":
            found[p.name] = replace(now, partitions=now.partitions + 1)
            changed |= {(p.name, "partitions")} if p.topic != CHECKPOINT.name else set()
        elif what == "fewer":
            found[p.name] = replace(now, partitions=now.partitions - 1)
            changed.add((p.name, "partitions"))
        elif what == "replication":
            found[p.name] = replace(now, replication=3)
            changed.add((p.name, "replication"))
        else:
            found[p.name] = replace(now, settings={**now.settings, what: "odd"})
            changed.add((p.name, what))
    assert {(d.name, d.key) for d in differences(wanted, found)} == changed


def test_what_cannot_be_repaired_says_what_to_do() -> None:
    wanted = [policy(KafkaConfig(partitions=2), PROBE.name)]
    more = differences(wanted, {PROBE.name: replace(there(wanted[0]), partitions=4, replication=2)})
    assert [(d.key, d.repairable) for d in more] == [("partitions", False), ("replication", False)]
    assert "cannot be taken away" in more[0].note
    assert "kafka-reassign-partitions.sh" in more[1].note


def test_growth_says_what_it_means_for_stages() -> None:
    def note(topic: str, have: int, partitions: int) -> str:
        wanted = policy(KafkaConfig(partitions=partitions), topic)
        if topic == CLOCK.name:
            wanted = replace(wanted, partitions=partitions)
        (one,) = differences([wanted], {topic: replace(there(wanted), partitions=have)})
        assert one.repairable
        return one.note

    assert "sync-edge has 8 units instead of 4 and begins its state anew" in note(PROBE.name, 4, 8)
    assert "hosts move between partitions" in note(OWD.name, 4, 8)
    assert "keys move between partitions" in note(CLOCK.name, 1, 8)
    assert "notes stay where they are" in note(CHECKPOINT.name, 16, 20)
    assert "every stage, the archive too, begins its state anew" in note(CHECKPOINT.name, 1, 4)


def test_list_prints_the_policy_without_a_broker(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sdf.yaml"
    file.write_text("kafka: {partitions: 4, topics: [{match: sdf.raw.*, retention_h: 2}]}\n")
    assert main(["topics", "list", "--config", str(file), "--json", "--acls"]) == 0
    said = capsys.readouterr()
    printed = json.loads(said.out.splitlines()[-1])
    by_name = {t["name"]: t for t in printed["topics"]}
    assert len(by_name) == len(NAMES)
    assert by_name[PROBE.name]["partitions"] == 4
    assert by_name[PROBE.name]["settings"]["retention.ms"] == str(2 * H_MS)
    assert by_name[PROBE.name]["most_bytes"] == 4 * 17 * GIB
    assert {"User:sdf-agent", "User:sdf-stage"} <= {g["principal"] for g in printed["acls"]}
    assert "at most" in said.err
    assert f"User:sdf-agent may WRITE topic {PROBE.name}" in said.err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["check"], "give --bus kafka://"),
        (["check", "--bus", "redis://x:1"], "it must be memory or kafka://"),
        (["check", "--bus", "kafka://127.0.0.1:1"], "127.0.0.1:1: connection refused"),
        (["check", "--dry-run"], "--dry-run goes with apply"),
        (["apply", "--prune"], "--prune goes with apply --acls"),
    ],
)
def test_what_cannot_run_is_said(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", *words]) == 2
    assert sentence in capsys.readouterr().err
