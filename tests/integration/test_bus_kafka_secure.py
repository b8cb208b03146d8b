"""TLS, users and access rules on a real broker: who gets in, who may do what, and what the others are told."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from sdfstream.bus.kafka import acl_io, topics_io
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.roles import ROLES
from sdfstream.bus.task import Work
from sdfstream.cli import main
from sdfstream.errors import ConfigError, SdfError, UnavailableError
from sdfstream.records.message import Output
from sdfstream.records.topics import CLOCK, COMMAND, FINDING, JOB, LIVENESS, OUTCOME, OVERRIDE, OWD, PROBE, TOPICS
from tests.bus_samples import clock, clock_batch, finding, probe_batch
from tests.contract.bus import take
from tests.fixtures.kafka_rights import MTLS, PREFIX, anything, bus_of, event, plain, refused, secured
from tests.fixtures.kafka_secure import ADMIN, Authority, SecureBroker, password_of

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def ready(secure_kafka: SecureBroker) -> SecureBroker:
    """The secure broker, with our topics and everybody's rights, as an administrator makes them."""
    config = secured(secure_kafka, ADMIN)
    asyncio.run(topics_io.apply(config))
    acl_io.apply(config, prune=False)
    return secure_kafka


# --- who gets in -------------------------------------------------------------------------------------------------


Change = Callable[[SecureBroker, Path], KafkaConfig]
REFUSALS: dict[str, tuple[Change, type[SdfError], str]] = {
    "password": (
        lambda b, d: secured(b, ADMIN, password_file=_wrong(d)),
        ConfigError, "does not let user admin in: wrong user or password; see kafka.user and kafka.password_file",
    ),
    "user": (
        lambda b, d: replace(secured(b, ADMIN), user="who"), ConfigError, "does not let user who in: wrong user",
    ),
    "mechanism": (
        lambda b, d: secured(b, ADMIN, mechanism="PLAIN"),
        ConfigError, "takes no PLAIN from users: see kafka.mechanism",
    ),
    "no authority": (
        lambda b, d: secured(b, ADMIN, ca_file=""),
        ConfigError, "is from an authority that this machine's authorities do not name",
    ),
    "another authority": (
        lambda b, d: secured(b, ADMIN, ca_file=str(Authority(d).ca_file)), ConfigError, "see kafka.ca_file",
    ),
    "another name": (
        lambda b, d: secured(b, ADMIN, servers=b.sasl_ssl.replace("localhost", "127.0.0.1")),
        ConfigError, "is for another name (IP address mismatch",
    ),
    "no TLS": (lambda b, d: plain(b), ConfigError, "speaks TLS, but kafka.security is PLAINTEXT"),
    "no user": (
        lambda b, d: plain(b, servers=b.sasl_plain), ConfigError, "ends the connection: it may want a user",
    ),
    "TLS to a plain door": (
        lambda b, d: secured(b, ADMIN, servers=b.sasl_plain),
        ConfigError, "does not speak TLS, but kafka.security is SASL_SSL",
    ),
    "no certificate": (
        lambda b, d: plain(b, servers=b.mtls, security="SSL", ca_file=str(b.authority.ca_file)),
        ConfigError, "wants another certificate of ours",
    ),
    "a foreign certificate": (
        lambda b, d: plain(b, servers=b.mtls, security="SSL", ca_file=str(b.authority.ca_file), **_foreign(d)),
        ConfigError, "wants another certificate of ours",
    ),
    "user where a certificate is asked for": (
        lambda b, d: secured(b, ADMIN, servers=b.mtls), ConfigError, "see kafka.cert_file and kafka.key_file",
    ),
    "no such host": (
        lambda b, d: secured(b, ADMIN, servers="broker.invalid:9092"), UnavailableError, "no such host",
    ),
    "nobody there": (lambda b, d: secured(b, ADMIN, servers="localhost:1"), UnavailableError, "connection refused"),
}  # fmt: skip


def _wrong(folder: Path) -> str:
    path = folder / "wrong"
    path.write_text("hunter2\n")
    return str(path)


def _foreign(folder: Path) -> dict[str, str]:
    cert, key = Authority(folder).issue("intruder")
    return {"cert_file": str(cert), "key_file": str(key)}


@pytest.mark.parametrize("case", REFUSALS)
async def test_whoever_is_not_let_in_is_told_why(secure_kafka: SecureBroker, tmp_path: Path, case: str) -> None:
    change, kind, sentence = REFUSALS[case]
    began_s = time.monotonic()
    with pytest.raises(kind) as caught:
        async with bus_of(change(secure_kafka, tmp_path)):
            pass
    assert sentence in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert time.monotonic() - began_s < 20, "a refusal is told soon, not after the request's time-out"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_users_get_in_with_and_without_tls(ready: SecureBroker, mechanism: str) -> None:
    for config in (
        secured(ready, ADMIN, mechanism=mechanism),
        secured(ready, ADMIN, mechanism=mechanism, security="SASL_PLAINTEXT", ca_file="", servers=ready.sasl_plain),
    ):
        async with bus_of(config) as bus:
            assert bus.cluster_id


async def test_a_client_with_a_certificate_has_the_rights_of_its_role(ready: SecureBroker) -> None:
    cert, key = ready.authority.issue("host7")
    config = replace(
        secured(ready, "sdf-agent"),
        servers=ready.mtls, security="SSL", user="", password_file="", cert_file=str(cert), key_file=str(key),
    )  # fmt: skip
    async with bus_of(config) as bus:
        await bus.publish([anything(PROBE.name)])
        assert "may not be used by this user" in await refused(bus.publish([clock(1)]))


async def test_an_expired_certificate_of_the_brokers_is_told_as_such(
    kafka_jars: Path, secure_kafka: SecureBroker, tmp_path: Path
) -> None:
    """No second broker: a door of our own with such a certificate, which is as far as anybody gets."""
    import ssl

    authority = Authority(tmp_path)
    cert, key = authority.issue("broker", ["localhost"], days=-1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = await asyncio.start_server(lambda r, w: w.close(), "localhost", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    config = secured(secure_kafka, ADMIN, servers=f"localhost:{port}", ca_file=str(authority.ca_file))
    try:
        with pytest.raises(ConfigError, match="is not valid now"):
            async with bus_of(config):
                pass
    finally:
        server.close()


# --- who may do what ---------------------------------------------------------------------------------------------


async def test_an_agent_writes_what_agents_say_and_nothing_else(ready: SecureBroker) -> None:
    may = set(ROLES["agent"].writes)
    async with bus_of(secured(ready, "sdf-agent")) as bus:
        for topic in may:
            await bus.publish([anything(topic)])
        for topic in TOPICS.keys() - may:
            said = await refused(bus.publish([anything(topic)]))
            assert f"topic {PREFIX}{topic} may not be used by this user" in said
        assert "roles that write it: stage;" in await refused(bus.publish([event(COMMAND.name)]))
        await bus.publish([anything(PROBE.name)])  # a refusal harms nothing that is allowed
        assert "group lab.sync may not be used by this user (role stage)" in await refused(
            bus.subscribe("sync", [COMMAND.name])
        )
        assert f"topic {PREFIX}{PROBE.name}" in await refused(bus.subscribe("agent-x", [PROBE.name]))
        said = await refused(bus.task(Work("detect", (COMMAND.name,)), 0))
        assert "transactional id lab.detect/0of1 may not be used by this user (role stage)" in said


async def test_an_agent_hears_its_commands(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-agent")) as agent, bus_of(secured(ready, "sdf-stage")) as stage:
        subscription = await agent.subscribe(f"agent-control-{time.time_ns()}", [COMMAND.name])
        await stage.publish([event(COMMAND.name, n=7)])
        (message,) = await take(subscription, 1)
        assert message.body.data["mark"] == 7  # type: ignore[union-attr]
        await subscription.commit()


async def test_a_reader_reads_everything_and_writes_nothing(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-reader")) as reader, bus_of(secured(ready, "sdf-stage")) as stage:
        topics = [CLOCK.name, FINDING.name, FINDING.dead_letters]
        subscription = await reader.subscribe(f"record-{time.time_ns()}", topics)
        await stage.publish_bytes(FINDING.name, "k", [("schema", FINDING.name.encode())], b"rubbish")
        await stage.publish([clock(1), finding(2)])
        assert {m.topic for m in await take(subscription, 2)} == {CLOCK.name, FINDING.name}
        await subscription.commit()
        assert reader.counters.get("refused", "json") == 1
        assert reader.counters.get("letter-denied", FINDING.dead_letters) == 1, "what it cannot keep, it counts"
        for topic in TOPICS:
            assert "may not be used by this user" in await refused(reader.publish([anything(topic)]))
        assert "(role stage)" in await refused(reader.subscribe("detect", [CLOCK.name]))


async def test_a_stage_commits_under_its_own_names(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-stage")) as stage, bus_of(secured(ready, "sdf-agent")) as agent:
        task = await stage.task(Work("sync", (PROBE.name,)), 0)
        await agent.publish([Output(PROBE.name, "h00", probe_batch(10))])
        async with asyncio.timeout(30):
            while not await task.read():
                pass
        await task.commit([clock(5)], notes={"state": b"x"})
        await task.close()
        again = await stage.task(Work("sync", (PROBE.name,)), 0)
        assert again.saved.notes == {"state": b"x"}
        said = await refused(again.commit([event(OVERRIDE.name)]))
        assert f"topic {PREFIX}{OVERRIDE.name} may not be used by this user (roles that write it: operator;" in said
        await again.close()
        said = await refused(stage.task(Work("archive", (OWD.name,)), 0))
        assert "transactional id lab.archive/0of1 may not be used by this user (role archive)" in said


async def test_the_archive_notes_and_reads_but_says_nothing(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-archive")) as archive, bus_of(secured(ready, "sdf-stage")) as stage:
        task = await archive.task(Work("archive", (CLOCK.name, FINDING.name), from_start=True), 0)
        await stage.publish([clock(9)])
        async with asyncio.timeout(30):
            while not await task.read():
                pass
        await task.commit(notes={"intent": b"y"})
        await task.close()
        assert "roles that write it: stage" in await refused(archive.publish([clock(1)]))


async def test_units_are_shared_out_by_membership(ready: SecureBroker) -> None:
    """Groups of members too stay within a stage's names."""
    async with bus_of(secured(ready, "sdf-stage")) as stage:
        began, stop = asyncio.Event(), asyncio.Event()

        async def run(task: Any) -> None:
            began.set()
            await stop.wait()

        sharing = asyncio.create_task(stage.shared(Work("plan", (LIVENESS.name,)), run, stop))
        async with asyncio.timeout(40):
            await began.wait()
            stop.set()
            await sharing


async def test_an_operator_asks_and_hears(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-operator")) as operator:
        subscription = await operator.subscribe(f"operator-{time.time_ns()}", [OUTCOME.name])
        await operator.publish([event(OVERRIDE.name)])
        assert await subscription.read(timeout_s=0.1) == []
        assert "roles that write it: stage;" in await refused(operator.publish([event(COMMAND.name)]))


async def test_nobody_may_use_anything(ready: SecureBroker) -> None:
    said = await refused(_start(secured(ready, "nobody")))
    assert "topics lab.sdf.* may not be used by nobody: `sdfstream topics apply --acls`" in said
    said = await refused(_start(secured(ready, "nobody", create_topics=True, prefix="other.")))
    assert "may not be used by nobody" in said


async def _start(config: KafkaConfig) -> None:
    async with bus_of(config):
        pass


async def test_an_agent_in_its_own_process_over_tls(ready: SecureBroker, tmp_path: Path) -> None:
    """Real probes over loopback, published by ``sdfstream agent`` and read by another role."""
    hosts = [_host("a", 1, "b", 2), _host("b", 2, "a", 1)]
    kafka = {
        "prefix": PREFIX, "security": "SASL_SSL", "ca_file": str(ready.authority.ca_file), "user": "sdf-agent",
        "password_file": str(ready.password_file("sdf-agent")), "create_topics": False,
    }  # fmt: skip
    file = tmp_path / "agent.yaml"
    whole = {"agent": {"hosts": hosts, "reflector_port": 18621, "realtime": False, "clock_pages": "off"}}
    file.write_text(yaml.safe_dump(whole | {"kafka": kafka}))
    async with bus_of(secured(ready, "sdf-reader")) as reader:
        subscription = await reader.subscribe(f"record-{time.time_ns()}", [PROBE.name])
        command = ["agent", "--config", str(file), "--bus", f"kafka://{ready.sasl_ssl}", "--json", "--seconds", "60"]
        agent = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sdfstream", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            answered = 0
            async with asyncio.timeout(50):
                while answered < 20:
                    for message in await subscription.read(timeout_s=0.5):
                        assert isinstance(message.body, pa.RecordBatch)
                        assert message.key in ("a", "b")
                        answered += message.body.num_rows - message.body.column("t4_ns").null_count
            agent.terminate()
            out, err = await asyncio.wait_for(agent.communicate(), 30)
        finally:
            if agent.returncode is None:
                agent.kill()
    assert agent.returncode == 0, err.decode()[-1000:]
    counters = json.loads(out.splitlines()[-1])["counters"]
    assert not [name for name in counters if "publish-failed" in name], counters
    assert password_of("sdf-agent") not in (out + err).decode()


def _host(name: str, n: int, peer: str, far: int) -> dict[str, Any]:
    session = {"src": f"{name}/0", "dst": f"{peer}/0", "dst_address": f"127.0.73.{far}", "dst_port": 18621}
    return {
        "host": name,
        "nics": [{"nic": f"{name}/0", "device": "lo", "address": f"127.0.73.{n}"}],
        "sessions": [session | {"source_ports": [50_100], "rate_hz": 40}],
        "read_ports": False,
    }


STAGES = ["sync", "sync-edge sync-mesh", "workload detect actuate plan"]


async def _said(process: asyncio.subprocess.Process, began: asyncio.Event) -> bytes:
    """All that a process says on stderr; `began` is set as soon as it has been given work."""
    lines = []
    assert process.stderr is not None
    async for line in process.stderr:
        lines.append(line)
        if b": units [" in line:
            began.set()
    return b"".join(lines)


@pytest.mark.parametrize(("user", "stages"), [*(("sdf-stage", s) for s in STAGES), ("sdf-archive", "archive")])
async def test_every_stage_runs_with_the_rights_of_its_role(
    ready: SecureBroker, tmp_path: Path, user: str, stages: str
) -> None:
    """Processes as they are deployed: whatever groups, transactions and topics a stage uses, its role lets it."""
    kafka = {
        "prefix": PREFIX, "security": "SASL_SSL", "ca_file": str(ready.authority.ca_file), "user": user,
        "password_file": str(ready.password_file(user)), "create_topics": False,
    }  # fmt: skip
    file = tmp_path / "sdf.yaml"
    file.write_text(yaml.safe_dump({"bus": f"kafka://{ready.sasl_ssl}", "data": str(tmp_path / "d"), "kafka": kafka}))
    command = ["run", *stages.split(), "--config", str(file), "--json", "--seconds", "60"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sdfstream", *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        async with bus_of(secured(ready, "sdf-agent")) as agent:
            said = asyncio.create_task(_said(process, began := asyncio.Event()))
            left = 40  # once its work was given to it, by then every stage has begun, read and committed
            for n in range(200):
                await agent.publish([event(JOB.name, f"job-{n}@h", n), Output(PROBE.name, "h00", probe_batch(10, n))])
                await asyncio.sleep(0.2)
                left -= began.is_set()
                if not left:
                    break
        process.terminate()
        out = await asyncio.wait_for(process.stdout.read(), 60) if process.stdout else b""
        err = await said
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, err.decode()[-2000:]
    counters = json.loads(out.splitlines()[-1])["counters"]
    bad = [name for name in counters if "restarted" in name or "commit-failed" in name or "denied" in name]
    assert not bad, (bad, err.decode()[-2000:])
    assert "may not be used" not in err.decode()
    assert [n for name, n in counters.items() if ("committed" in name or name == "archive.messages") and n], counters


# --- giving and taking rights ------------------------------------------------------------------------------------


def test_rights_are_given_taken_and_checked(
    ready: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made once by a superuser, then kept by the role admin."""
    file = tmp_path / "sdf.yaml"

    def call(*words: str, user: str = "sdf-admin", readers: tuple[str, ...] = ("User:sdf-reader",)) -> tuple[int, Any]:
        kafka = {
            "prefix": PREFIX, "security": "SASL_SSL", "ca_file": str(ready.authority.ca_file), "user": user,
            "password_file": str(ready.password_file(user)),
            "principals": {"agent": ["User:sdf-agent", MTLS], "reader": list(readers)},
        }  # fmt: skip
        file.write_text(yaml.safe_dump({"bus": f"kafka://{ready.sasl_ssl}", "kafka": kafka}))
        capsys.readouterr()
        code = main(["topics", *words, "--config", str(file), "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out.splitlines()[-1]) if said.out else said.err

    assert call("check", "--acls") == (
        0,
        {"ok": True, "differences": [], "acls": {"missing": [], "extra": [], "odd": []}},
    )
    both = ("User:sdf-reader", "User:guest")
    code, told = call("check", "--acls", readers=both)
    assert code == 1
    assert {g["principal"] for g in told["acls"]["missing"]} == {"User:guest"}
    code, told = call("apply", "--acls", "--dry-run", readers=both)
    assert (code, len(told["acls"]["missing"])) == (0, 5)
    code, told = call("apply", "--acls", readers=both)
    assert (code, len(told["acls"]["given"]), told["acls"]["missing"]) == (0, 5, [])
    assert call("check", "--acls", readers=both)[0] == 0

    # a guest who becomes an operator keeps a reader's rights until somebody takes them
    code, told = call("check", "--acls", readers=("User:sdf-reader", "User:guest", "User:sdf-operator"))
    assert (code, len(told["acls"]["missing"])) == (1, 5)
    assert call("apply", "--acls", readers=("User:sdf-reader", "User:sdf-operator"))[0] == 0
    code, told = call("apply", "--acls")
    assert (code, told["acls"]["taken"], len(told["acls"]["extra"])) == (0, [], 5)
    code, told = call("apply", "--acls", "--prune")
    assert (code, len(told["acls"]["taken"]), told["acls"]["extra"]) == (0, 5, [])
    assert call("check", "--acls")[0] == 0

    code, said = call("check", "--acls", user="sdf-reader")
    assert (code, "sdf-reader may not see or set access rules (role admin, or a superuser)" in said) == (2, True)
    code, said = call("apply", user="nobody")
    assert (code, "may not be used by this user" in said) == (2, True)
    code, said = call("check", user="nobody")
    assert (code, "may not be used by this user" in said) == (2, True)


async def test_the_largest_clock_batch_passes_over_tls(ready: SecureBroker) -> None:
    async with bus_of(secured(ready, "sdf-stage")) as stage, bus_of(secured(ready, "sdf-reader")) as reader:
        subscription = await reader.subscribe(f"record-{time.time_ns()}", [CLOCK.name])
        batch = clock_batch(1, rows=100_000)
        await stage.publish([Output(CLOCK.name, "mesh", batch)])
        (message,) = await take(subscription, 1)
        assert message.rows == 100_000
