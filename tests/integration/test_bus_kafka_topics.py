"""``sdfstream topics`` as a user calls it, against a real broker."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka.admin import NewPartitions
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from sdfstream.bus.kafka.admin_io import admin_of
from sdfstream.bus.kafka.bus_io import KafkaBus
from sdfstream.bus.kafka.config import CHECKPOINT_PARTITIONS, NAMES, KafkaConfig
from sdfstream.bus.kafka.topic_policy import policies
from sdfstream.cli import main
from sdfstream.records.topics import CHECKPOINT, CLOCK, PROBE
from tests.fixtures.kafka_broker import Broker

pytestmark = pytest.mark.kafka

_PREFIXES = count()


class Place:
    """A name space of its own on the session's broker, with a settings file that a test may change."""

    def __init__(self, address: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.prefix = f"topics{next(_PREFIXES)}-{time.time_ns()}."
        self.address = address
        self._file = folder / "sdf.yaml"
        self._capsys = capsys

    def call(self, what: str, *words: str, **kafka: Any) -> tuple[int, dict[str, Any], str]:
        """Exit code, the JSON object, and what people read, of ``topics what`` with these kafka settings."""
        self._file.write_text(yaml.safe_dump({"kafka": {"prefix": self.prefix, **kafka}}))
        self._capsys.readouterr()
        bus = f"kafka://{self.address}"
        code = main(["topics", what, "--config", str(self._file), "--bus", bus, "--json", *words])
        said = self._capsys.readouterr()
        return code, json.loads(said.out.splitlines()[-1]) if said.out else {}, said.err

    def config(self, **kafka: Any) -> KafkaConfig:
        return KafkaConfig(servers=self.address, prefix=self.prefix, **kafka)

    def alter(self, topic: str, settings: Mapping[str, str]) -> None:
        """Give a topic settings by hand, all that it was given before being forgotten."""

        async def work() -> None:
            async with admin_of(self.config()) as admin:
                name = self.prefix + topic
                (answer,) = await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, settings)])
                assert answer.resources[0][0] == 0, answer

        asyncio.run(work())
        until_s = time.monotonic() + 20
        while not settings.items() <= self.given(topic).items():  # the controller took it; our broker hears of it
            assert time.monotonic() < until_s

    def given(self, topic: str) -> dict[str, str]:
        """The settings of a topic, by hand."""

        async def work() -> dict[str, str]:
            async with admin_of(self.config()) as admin:
                name = self.prefix + topic
                (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
                return {key: value for key, value, *_ in answer.resources[0][4]}

        return asyncio.run(work())


@pytest.fixture
def place(kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(kafka.address, tmp_path, capsys)


def test_topics_are_made_and_then_nothing_is_to_be_done(place: Place) -> None:
    code, told, text = place.call("check")
    assert (code, told["ok"]) == (1, False)
    assert {d["what"] for d in told["differences"]} == {"absent"}
    assert f"{place.prefix}{PROBE.name}: absent, to be made with 1 partitions" in text

    code, told, text = place.call("apply", "--dry-run")
    assert (code, len(told["differences"]), told["dry_run"]) == (0, len(NAMES), True)
    assert place.call("check")[0] == 1, "a dry run makes nothing"

    code, told, _ = place.call("apply")
    assert (code, len(told["done"]), told["left"]) == (0, len(NAMES), [])
    assert place.call("check")[:2] == (0, {"ok": True, "differences": []})
    code, told, text = place.call("apply")
    assert (code, told, text.strip()) == (
        0,
        {"done": [], "left": []},
        "nothing to do: all topics are as they must be",
    )
    given = place.given(CHECKPOINT.name)
    assert (given["cleanup.policy"], given["min.cleanable.dirty.ratio"]) == ("compact", "0.1")
    assert place.given(PROBE.name)["retention.ms"] == str(6 * 3_600_000)


def test_a_changed_setting_is_found_and_repaired_and_others_are_left(place: Place) -> None:
    assert place.call("apply")[0] == 0
    place.alter(PROBE.name, {"retention.ms": "1000", "cleanup.policy": "compact", "compression.type": "lz4"})
    code, told, text = place.call("check")
    assert code == 1
    differing = {d["key"]: (d["have"], d["want"]) for d in told["differences"]}
    assert differing["retention.ms"] == ("1000", str(6 * 3_600_000))
    assert differing["cleanup.policy"] == ("compact", "delete")
    assert "message.timestamp.type" in differing
    assert {d["name"] for d in told["differences"]} == {place.prefix + PROBE.name}
    assert f"{PROBE.name}: retention.ms is 1000, must be 21600000" in text

    code, told, _ = place.call("apply")
    assert (code, {d["key"] for d in told["done"]}, told["left"]) == (0, set(differing), [])
    assert place.call("check")[0] == 0
    assert place.given(PROBE.name)["compression.type"] == "lz4", "what the policy does not name is a person's choice"


def test_retention_follows_the_settings(place: Place) -> None:
    assert place.call("apply")[0] == 0
    rules = [{"match": "sdf.raw.*", "retention_h": 2}]
    code, told, _ = place.call("check", topics=rules)
    assert code == 1
    assert {d["key"] for d in told["differences"]} == {"retention.ms", "segment.ms"}
    assert {d["name"].removeprefix(place.prefix).split(".")[1] for d in told["differences"]} == {"raw"}
    assert place.call("apply", topics=rules)[0] == 0
    assert place.call("check", topics=rules)[0] == 0


def test_partitions_grow_and_never_shrink(place: Place) -> None:
    assert place.call("apply", partitions=2)[0] == 0
    code, told, text = place.call("apply", partitions=4)
    assert (code, told["left"]) == (0, [])
    assert {d["what"] for d in told["done"]} == {"partitions"}
    assert "sync-edge has 4 units instead of 2 and begins its state anew" in text
    assert not any(CHECKPOINT.name in d["name"] for d in told["done"]), "room for 16 units was there from the start"
    assert place.call("check", partitions=4)[0] == 0

    code, told, text = place.call("apply", partitions=2)
    assert (code, told["done"]) == (0, [])
    assert {(d["have"], d["want"], d["repairable"]) for d in told["left"]} == {("4", "2", False)}
    assert "partitions cannot be taken away" in text
    assert place.call("check", partitions=2)[0] == 1
    assert place.call("check", partitions=4)[0] == 0


def test_what_no_command_can_repair_is_left_and_said(place: Place) -> None:
    assert place.call("apply")[0] == 0
    code, told, text = place.call("check", replication=2)
    assert code == 1
    assert {d["key"] for d in told["differences"]} == {"replication"}
    assert "kafka-reassign-partitions.sh" in text
    code, told, _ = place.call("apply", replication=2)
    assert (code, told["done"], len(told["left"])) == (0, [], len(NAMES))


def test_topics_that_cannot_be_made_are_a_sentence(place: Place) -> None:
    code, told, text = place.call("apply", replication=3)
    assert (code, told) == (2, {})
    assert "InvalidReplicationFactorError" in text


def test_rules_need_an_authorizer_on_the_brokers(place: Place) -> None:
    assert place.call("apply")[0] == 0
    code, _, text = place.call("check", "--acls")
    assert code == 2
    assert "the brokers judge by no access rules: set authorizer.class.name" in text


def test_without_the_extra_package_rules_are_a_sentence(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    code, _, text = place.call("check", "--acls")
    assert code == 2
    assert "pip install 'sdfstream[acl]'" in text
    assert place.call("check")[0] == 1, "and without --acls it is not needed"


async def test_a_bus_makes_the_same_topics_at_start(kafka: Broker) -> None:
    from sdfstream.bus.kafka import topics_io

    config = KafkaConfig(servers=kafka.address, prefix=f"start{time.time_ns()}.", partitions=3)
    bus = KafkaBus(config, time.time_ns, boot_id="b")
    await bus.start()
    try:
        found, differences = await topics_io.compare(config)
    finally:
        await bus.close()
    assert differences == []
    assert {name: f.partitions for name, f in found.items()} == {p.name: p.partitions for p in policies(config)}


async def test_a_task_finds_its_notes_after_topics_grew(kafka: Broker) -> None:
    """Notes lie in partitions that a task's name decides, so more of them move none."""
    from sdfstream.bus.task import Work
    from tests.bus_samples import clock

    config = KafkaConfig(servers=kafka.address, prefix=f"grow{time.time_ns()}.")
    bus = KafkaBus(config, time.time_ns, boot_id="b")
    await bus.start()
    try:
        work = Work("detect", (CLOCK.name,), from_start=True)
        await bus.publish([clock(1)])
        task = await bus.task(work, 0)
        async with asyncio.timeout(30):
            while not await task.read():
                pass
        await task.commit(notes={"state": b"seen 1"})
        await task.close()
        more = replace(config, partitions=CHECKPOINT_PARTITIONS + 4)
        async with admin_of(config) as admin:
            wanted = {p.name: NewPartitions(total_count=p.partitions) for p in policies(more) if p.partitions > 16}
            assert config.prefix + CHECKPOINT.name in wanted
            await admin.create_partitions(wanted)
        later = KafkaBus(more, time.time_ns, boot_id="b")
        await later.start()
        try:
            again = await later.task(work, 0)
            assert again.saved.notes == {"state": b"seen 1"}
            await again.close()
        finally:
            await later.close()
    finally:
        await bus.close()
