"""What an operator says straight to Kafka, without a pipeline on this machine: overrides, cabling."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
import yaml

from sdfstream.bus.kafka import acl_io, topics_io
from sdfstream.bus.open_io import open_bus
from sdfstream.cli import main
from sdfstream.records.command import Outcome
from sdfstream.records.message import Event, Message, Output
from sdfstream.records.signature import KeyRing
from sdfstream.records.topics import OUTCOME, OVERRIDE, TOPOLOGY
from sdfstream.serve import operator_keys_io
from tests.contract.bus import take
from tests.fixtures.kafka_broker import Broker
from tests.fixtures.kafka_rights import PREFIX, bus_of, secured
from tests.fixtures.kafka_secure import ADMIN, SecureBroker
from tests.unit.plan.test_cabling_file import cabling

pytestmark = pytest.mark.kafka


async def test_an_override_by_kafka_waits_for_its_outcome(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    signer = operator_keys_io.ensure(tmp_path)
    name = f"kafka://{kafka.address}"
    bus = await open_bus(name, time.time_ns, boot_id="controller")
    reader = await bus.subscribe("controller", [OVERRIDE.name])
    words = ["policy", "mode", "observe", "--data", str(tmp_path), "--bus", name, "--wait", "30", "--json"]
    calling = asyncio.create_task(asyncio.to_thread(main, words))
    async with asyncio.timeout(60):
        while not (found := await reader.read(timeout_s=0.5)):
            assert not calling.done()
        body = found[0].body
        assert isinstance(body, Event)
        assert KeyRing([signer.public]).refuses(body.data) == ""
        said = Outcome(str(body.data["id"]), "applied", "mode: mode is observe from now on", "controller", 1)
        await bus.publish([Output(OUTCOME.name, said.command, Event(OUTCOME.name, "actuate", "1", 1, said.as_data()))])
        assert await calling == 0
    (told,) = json.loads(capsys.readouterr().out)["overrides"]
    assert (told["what"], told["outcome"]["state"]) == ("mode", "applied")
    await bus.close()


async def test_cabling_is_declared_for_every_reader_and_a_later_one_takes_its_place(
    kafka: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, file = f"kafka://{kafka.address}", tmp_path / "cabling.json"
    first, second = cabling(), cabling()
    second["nics"][0]["rail"] = 1
    for data in (first, second):
        file.write_text(json.dumps(data))
        assert await asyncio.to_thread(main, ["cabling", str(file), "--bus", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["topic"] == TOPOLOGY.name
    bus = await open_bus(name, time.time_ns, boot_id="reader")
    reader = await bus.subscribe("reader", [TOPOLOGY.name], from_start=True)
    found: list[Message] = []
    async with asyncio.timeout(60):
        while len(found) < 2:
            found += [m for m in await reader.read(timeout_s=0.5) if m.key == "declared"]
    assert [m.body.data for m in found if isinstance(m.body, Event)] == [first, second]
    await bus.close()


async def test_cabling_is_declared_on_a_secured_broker_by_an_operator_and_not_by_a_reader(
    secure_kafka: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = secured(secure_kafka, ADMIN)
    await topics_io.apply(admin)
    await asyncio.to_thread(acl_io.apply, admin, prune=False)
    file = tmp_path / "cabling.json"
    file.write_text(json.dumps(cabling()))

    async def declared_by(user: str) -> int:
        kafka = {
            "prefix": PREFIX, "security": "SASL_SSL", "ca_file": str(secure_kafka.authority.ca_file), "user": user,
            "password_file": str(secure_kafka.password_file(user)),
        }  # fmt: skip
        settings = tmp_path / f"{user}.yaml"
        settings.write_text(yaml.safe_dump({"bus": f"kafka://{secure_kafka.sasl_ssl}", "kafka": kafka}))
        return await asyncio.to_thread(main, ["cabling", str(file), "--config", str(settings), "--json"])

    async with asyncio.timeout(60):
        refused = True
        while refused:  # rules that were just made hold a moment later
            refused = bool(await declared_by("sdf-operator"))
    capsys.readouterr()
    async with bus_of(secured(secure_kafka, "sdf-reader")) as bus:
        reader = await bus.subscribe(f"reader-{time.time_ns()}", [TOPOLOGY.name])
        assert await declared_by("sdf-operator") == 0
        assert json.loads(capsys.readouterr().out)["topic"] == TOPOLOGY.name
        (message,) = await take(reader, 1)
        assert isinstance(message.body, Event)
        assert (message.key, message.body.data) == ("declared", cabling())
    assert await declared_by("sdf-reader") == 2
    said = capsys.readouterr().err
    assert "may not be used by this user" in said
    assert "roles that write it: agent, operator" in said
