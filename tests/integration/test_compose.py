"""docker-compose.yml and the image, as far as they can be shown without Docker: their text, and what they run.

Every service of ours runs here by its own command, in its own environment, with its own health check, against a real
broker that was started with the file's own environment, and ClickHouse's engine behind its HTTP protocol.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from sdfstream import settings
from sdfstream.archive.engine_io import Engine
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.open_io import open_bus
from sdfstream.errors import SdfError
from sdfstream.records.topics import CLOCK, PROBE
from tests.fixtures import prometheus as tools
from tests.fixtures.compose import FILE, MADE, ROOT, VARIABLE, ComposeBroker, Service, compose, seconds
from tests.fixtures.kafka_broker import free_ports
from tests.fixtures.sql_front import sql_front
from tests.integration.test_serve_api import ask

OURS = ("topics", "migrate", "sync", "workload", "detect", "actuate", "plan", "archive", "serve", "source")
WATCHING = ("prometheus", "alertmanager", "grafana")
ONCE = ("topics", "migrate")
PREPARING = (*ONCE, "users")
PASSWORD = MADE["SDFSTREAM_CLICKHOUSE_PASSWORD"]
PILOT = ROOT / "docs" / "pilot.md"
POM = ROOT / "tests" / "fixtures" / "kafka" / "pom.xml"


# --- the text ----------------------------------------------------------------------------------------------------


def test_docker_compose_takes_the_file() -> None:
    if not (tool := shutil.which("docker-compose")):
        assert not os.environ.get("SDFSTREAM_CI"), "docker-compose is missing (Debian: apt-get install docker-compose)"
        pytest.skip("docker-compose is not installed (Debian: apt-get install docker-compose)")
    given = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    command = [tool, "-f", str(FILE), "--profile", "watch", "--profile", "agent", "config"]
    done = subprocess.run(command, env=given | MADE, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    theirs, ours = yaml.safe_load(done.stdout)["services"], compose()["services"]
    assert theirs.keys() == ours.keys()
    for name, service in theirs.items():  # the test's own reading of the file is compose's
        for key in ("command", "image", "user"):
            assert service.get(key) == ours[name].get(key), (name, key)
        assert service.get("environment") == ours[name].get("environment"), name


def test_there_is_no_name_and_no_version_and_every_image_is_pinned() -> None:
    spec = compose()
    assert not {"name", "version"} & spec.keys()
    for service in spec["services"].values():
        theirs = r"[a-z/-]+:v?\d+(\.\d+){2,3}@sha256:[0-9a-f]{64}"
        assert service["image"] == "sdfstream:local" or re.fullmatch(theirs, service["image"]), service["image"]
    assert re.split("[:@]", spec["services"]["kafka"]["image"])[1] in POM.read_text()  # what the tests run, too
    bases = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+@sha256:[0-9a-f]{64}", bases[0]), bases


@pytest.mark.parametrize("name", [*compose()["services"]])
def test_a_service_is_bounded_and_has_no_more_rights_than_it_needs(name: str) -> None:
    service = compose()["services"][name]
    assert {"max-size", "max-file"} <= service["logging"]["options"].keys()
    assert service["mem_limit"]
    assert "no-new-privileges:true" in service["security_opt"]
    assert not service.get("privileged")
    assert service["cap_drop"] == ["ALL"]
    if name in PREPARING:
        assert service["restart"] == "no"
    else:
        assert service["restart"] == "unless-stopped"
        assert seconds(service["stop_grace_period"]) >= 30
        assert "healthcheck" in service
    if name in (*OURS, "agent"):
        assert service["read_only"]
        assert service.get("user") == ("0:0" if name == "agent" else None)  # else the image's own, which is not root
    if name in WATCHING:
        assert service["read_only"]
        assert service["profiles"] == ["watch"]
        assert not service["user"].startswith("0")
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:"), port
    for volume in service.get("volumes", ()):
        kind = volume.split(":")[0]
        shared = kind == "/run/sdfstream" and name == "agent"
        assert kind in compose()["volumes"] or volume.endswith(":ro") or shared, volume
        made = ("./agent.yaml", "./secrets/files")  # by you, and by deploy/secrets.sh
        if kind.startswith("./") and kind not in made:
            assert (ROOT / kind).exists(), volume


def test_what_a_service_waits_for_can_happen() -> None:
    services = compose()["services"]
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            wanted = "service_completed_successfully" if other in ONCE else "service_healthy"
            wanted = "service_started" if name in WATCHING else wanted  # they are to see what is unwell
            assert how == {"condition": wanted}, (name, other)
            assert other in ONCE or "healthcheck" in services[other]


def test_every_stage_has_a_service() -> None:
    from sdfstream.cli.run import STAGES

    run = {c[1] for s in compose()["services"].values() if (c := s.get("command", [""]))[0] == "run"}
    assert run == {stage for stage in STAGES if not stage.startswith("sync-")}


def test_every_variable_is_explained_and_has_the_default_that_is_told() -> None:
    told = PILOT.read_text()
    for name, default, why in set(VARIABLE.findall(FILE.read_text())):
        if name and name != "NAME":
            assert f"| `{name}` | {'made' if why else f'`{default}`'} |" in told, name


def test_the_settings_that_are_mounted_are_correct() -> None:
    assert settings.load(ROOT / "deploy" / "pilot" / "sdfstream.yaml").actuate.mode == "dry-run"


def test_the_image_is_made_of_what_its_context_holds() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    let_in = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [c for c in re.findall(r"^COPY (?!--from)(\S+) ", dockerfile, re.MULTILINE)]
    assert sorted(copied) == sorted(let_in)
    assert all((ROOT / path).exists() for path in copied)
    last = dockerfile.rpartition("FROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert last.index("pip uninstall") < last.index("USER")


def test_the_images_packages_are_the_tested_ones() -> None:
    pinned = re.compile(r"^([a-z0-9-]+)==([^ ]+)( ; [^\\]+)?", re.MULTILINE)
    tested = {(name, version) for name, version, _ in pinned.findall((ROOT / "requirements.lock").read_text())}
    shipped = {(name, version) for name, version, _ in pinned.findall((ROOT / "requirements-run.lock").read_text())}
    assert shipped <= tested
    import tomllib

    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split(r"[>=;]", w)[0] for w in wanted} <= {name for name, _ in shipped}
    assert not {"pytest", "mypy", "ruff", "setuptools"} & {name for name, _ in shipped}


def test_a_broker_that_begins_anew_has_a_new_id_and_keeps_it(tmp_path: Path) -> None:
    script, run, meta = ROOT / "deploy" / "kafka" / "start.sh", tmp_path / "run", tmp_path / "meta.properties"
    run.write_text('#!/bin/sh\necho "$CLUSTER_ID"\n')
    run.chmod(0o755)

    def started() -> str:
        given = {"PATH": os.environ["PATH"], "KAFKA_LOG_DIRS": str(tmp_path)}
        done = subprocess.run(["bash", str(script), str(run)], env=given, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    ids = {started() for _ in range(20)}
    assert len(ids) == 20
    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}", i) for i in ids), ids
    meta.write_text("version=1\ncluster.id=c2Rmc3RyZWFtLXRlc3RzLQ\nnode.id=1\n")
    assert started() == "c2Rmc3RyZWFtLXRlc3RzLQ"


def test_the_scripts_are_clean() -> None:
    if not (tool := shutil.which("shellcheck")):
        assert not os.environ.get("SDFSTREAM_CI"), "shellcheck is missing (Debian: apt-get install shellcheck)"
        pytest.skip("shellcheck is not installed (Debian: apt-get install shellcheck)")
    scripts = [ROOT / "deploy" / name for name in ("kafka/start.sh", "kafka/users.sh", "secrets.sh")]
    done = subprocess.run([tool, *map(str, scripts)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_secrets_are_made_once_and_are_their_owners_alone(tmp_path: Path) -> None:
    script = ROOT / "deploy" / "secrets.sh"
    for _ in range(2):
        subprocess.run(["bash", str(script), str(tmp_path / ".env")], check=True, capture_output=True)
        files = tmp_path / "secrets" / "files"
        made = {path.name: path.read_text() for path in files.iterdir()}
        assert made.keys() == {"api-token", "slack-url", "webhook-url", "grafana-password"}
        assert re.fullmatch(r"[0-9a-f]{48}", made["grafana-password"])
        assert made["api-token"] in ("", "sdf_mine")
        assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
        assert files.parent.stat().st_mode & 0o777 == 0o700, "containers read the files, nobody else comes to them"
        assert {path.stat().st_mode & 0o777 for path in files.iterdir()} == {0o644}
        (files / "api-token").write_text("sdf_mine")
    assert made["api-token"] == "sdf_mine"
    mounted = {v.split(":")[1] for name in WATCHING for v in compose()["services"][name]["volumes"]}
    assert "/run/secrets" in mounted


@pytest.mark.parametrize("name", ["prometheus", "alertmanager"])
def test_prometheus_and_alertmanager_run_by_the_files_own_commands(name: str, tmp_path: Path) -> None:
    service = compose()["services"][name]
    (port,) = free_ports(1)
    binds = {v.split(":")[1]: v.split(":")[0] for v in service["volumes"]}
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for secret in ("api-token", "slack-url", "webhook-url"):
        (secrets / secret).write_text("")
    if name == "alertmanager":
        here = {"/etc/alertmanager/alertmanager.yml": str(tools.alertmanager_config(tmp_path, "http://127.0.0.1:9"))}
    else:
        shutil.copytree(ROOT / binds["/etc/prometheus/rules"], tmp_path / "rules")
        config = (ROOT / binds["/etc/prometheus/prometheus.yml"]).read_text().replace("/run/secrets", str(secrets))
        (tmp_path / "prometheus.yml").write_text(config)
        here = {"/etc/prometheus/prometheus.yml": str(tmp_path / "prometheus.yml")}
    (data,) = [inside for inside, outside in binds.items() if outside in compose()["volumes"]]
    inside_port = service["ports"][0].rsplit(":")[-1]
    here |= {f"={data}": f"={tmp_path / 'data'}", f"0.0.0.0:{inside_port}": f"127.0.0.1:{port}"}
    words = service["command"]
    for theirs, ours in here.items():
        assert any(theirs in word for word in words), theirs
        words = [word.replace(theirs, ours) for word in words]
    ready = service["healthcheck"]["test"][-1].replace(inside_port, str(port))
    program = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager"}[name]
    with tools.process(program, *words, log=tmp_path / "said", ready=ready):
        if name == "prometheus":
            groups = tools.get(f"http://127.0.0.1:{port}/api/v1/rules")["data"]["groups"]
            assert {group["name"] for group in groups} == {"sdf-fabric", "sdf-pipeline"}
            targets = f"http://127.0.0.1:{port}/api/v1/targets"
            asked = tools.until(lambda: tools.get(targets)["data"]["activeTargets"], "targets")
            known = {f"{other}:{p}" for other, s in compose()["services"].items() for p in s.get("expose", ())}
            known.add("alertmanager:9093")
            assert {t["discoveredLabels"]["__address__"] for t in asked} <= known
            assert len(asked) == 9


# --- what it runs ------------------------------------------------------------------------------------------------


@pytest.fixture
def broker(kafka_jars: Path, tmp_path: Path) -> Iterator[ComposeBroker]:
    running = ComposeBroker(kafka_jars, tmp_path / "kafka", compose()["services"]["kafka"])
    try:
        running.start()
        yield running
    finally:
        running.stop()


def _writes_to_volumes_alone(service: Service) -> None:
    """What has no volume there has a file system that cannot be written to."""
    kept = {v.split(":")[1] for v in service.spec["volumes"]}
    assert "/data" in kept or not any((service.folder / "data").iterdir()), service.name


@pytest.mark.kafka
def test_all_of_it_comes_up_shows_a_finding_and_stops(broker: ComposeBroker, tmp_path: Path) -> None:
    began_s = time.monotonic()
    took: dict[str, float] = {}

    def mark(what: str) -> None:
        took[what] = round(time.monotonic() - began_s, 1)

    with sql_front(tmp_path / "clickhouse", PASSWORD) as port:
        addresses = {"kafka:9092": broker.address, "clickhouse:8123": f"127.0.0.1:{port}"}
        services = {name: Service(name, compose()["services"][name], addresses, tmp_path / name) for name in OURS}
        try:
            broker.run(compose()["services"]["users"])
            for name in ONCE:
                done = services[name].run(60.0)
                assert done.returncode == 0, f"{name}: {done.stderr}"
            mark("once")
            stages = [name for name in OURS if name not in (*ONCE, "source")]
            for name in stages:
                services[name].start()
            for name in stages:
                services[name].wait_healthy(seconds(services[name].spec["healthcheck"]["start_period"]))
            mark("stages")
            services["source"].start()
            services["source"].wait_healthy(60.0)
            mark("source")
            url = services["archive"].environment["SDFSTREAM_ARCHIVE"]
            until(lambda: rows(url, "SELECT 1 FROM raw_probe LIMIT 1"), 60.0)
            until(lambda: rows(url, "SELECT 1 FROM derived_owd LIMIT 1"), 60.0)
            mark("rows")
            found = until(lambda: rows(url, "SELECT kind, subject_id FROM v_findings"), 60.0)
            mark("finding")
            assert ("nic-down", "h01/r1") in found
            for sql in re.findall(r"""["'](SELECT [^"']+)["']""", PILOT.read_text()):
                until(lambda sql=sql: rows(url, sql), 30.0)  # type: ignore[misc]
            _kcat_reads(broker.local)
            asyncio.run(_the_agents_door_is_narrow(broker, tmp_path))
            # stages that run alone commit their own troubles too, which say nothing of how far they have read
            url = f"http://127.0.0.1:{services['serve'].api_port}"
            time.sleep(max(0.0, began_s + took["finding"] + 8.0 - time.monotonic()))
            status, health = ask(url, "/healthz")
            assert (status, health["fresh"]) == (200, True), health
            mark("walk")
            assert [s.name for s in services.values() if s.process and s.healthy()] == []
        finally:
            running = [s for s in services.values() if s.process is not None]
            for service in reversed(running):
                service.tell()
            ended = {service.name: service.end() for service in running}
        mark("stopped")
    print(json.dumps(took))
    assert set(ended.values()) == {0}, {n: (code, services[n].said()) for n, code in ended.items() if code}
    for service in services.values():
        _writes_to_volumes_alone(service)
    assert broker.properties()["auto.create.topics.enable"] == "false"
    assert not any("heap" in name for name in broker.properties())


def _kcat_reads(address: str) -> None:
    """The page's own command, at our address."""
    (command,) = re.findall(r"^    (kcat .*)$", PILOT.read_text(), re.MULTILINE)
    if shutil.which("kcat"):
        here = command.replace("127.0.0.1:29092", address)
        done = subprocess.run(["bash", "-c", here], capture_output=True, text=True, timeout=30)
        assert json.loads(done.stdout)["data"]["kind"] == "nic-down", done.stderr


async def _the_agents_door_is_narrow(broker: ComposeBroker, folder: Path) -> None:
    """What `SDFSTREAM_BIND` opens: nobody without the agents' password, and with it an agent's topics alone."""
    stranger = KafkaConfig(broker.agents, request_timeout_ms=5_000)
    with pytest.raises(SdfError):
        await _write(stranger, PROBE.name)
    password = folder / "kafka.password"
    for given, lets_in in (("a guess", False), (MADE["SDFSTREAM_KAFKA_PASSWORD"], True)):
        password.write_text(given)
        agent = replace(
            stranger, security="SASL_PLAINTEXT", user="sdf-agent", password_file=str(password), create_topics=False
        )
        with nullcontext() if lets_in else pytest.raises(SdfError, match="does not let user"):
            await _write(agent, PROBE.name)
    with pytest.raises(SdfError, match="may not be used by this user"):
        await _write(agent, CLOCK.name)


async def _write(config: KafkaConfig, topic: str) -> None:
    bus = await open_bus(f"kafka://{config.servers}", time.time_ns, boot_id="door", kafka=config)
    try:
        await bus.publish_bytes(topic, "h", [("schema", topic.encode())], b"rubbish")
    finally:
        await bus.close()


def rows(url: str, sql: str) -> list[tuple[Any, ...]]:
    engine = Engine.open(url)
    try:
        return engine.rows(sql)
    finally:
        engine.close()


def until(ask: Callable[[], list[tuple[Any, ...]]], timeout_s: float) -> list[tuple[Any, ...]]:
    """The first answer that is not empty."""
    deadline = time.monotonic() + timeout_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.3)
    return answer
