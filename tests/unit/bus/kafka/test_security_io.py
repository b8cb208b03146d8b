"""How clients prove who they are: read from files and the environment, refused in sentences, never printed."""

from __future__ import annotations

import argparse
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives import serialization

from sdfstream import settings
from sdfstream.agent.config_file import read
from sdfstream.bus.kafka.config import KafkaConfig
from sdfstream.bus.kafka.security_io import client_settings, librdkafka_settings, password
from sdfstream.bus.kafka.topic_rules import TopicRule
from sdfstream.cli import agent, main
from sdfstream.errors import ConfigError
from tests.fixtures.kafka_secure import Authority

SECRET = "correct horse battery staple"
WHO = {"security": "SASL_SSL", "user": "sdf-agent"}


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(SECRET + "\nwhat follows is a comment\n")
    return str(path)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"security": "SASL_SSL"}, "kafka.user is missing"),
        (WHO, "give one of kafka.password_file and kafka.password_env"),
        (WHO | {"password_file": "a", "password_env": "b"}, "give one of"),
        ({"user": "x"}, "kafka.security is PLAINTEXT, which uses no user"),
        ({"security": "SSL", "user": "x", "password_env": "P"}, "kafka.security is SSL, which uses no user"),
        ({"ca_file": "x"}, "which uses no ca_file"),
        ({"security": "SASL_PLAINTEXT", "user": "x", "password_env": "P", "ca_file": "x"}, "which uses no ca_file"),
        ({"security": "SSL", "cert_file": "x"}, "belong together"),
        (
            {"security": "SASL_PLAINTEXT", "user": "x", "password_env": "P", "mechanism": "PLAIN"},
            "kafka.security must be SASL_SSL",
        ),
        ({"min_insync": 2}, "kafka.min_insync must be 0 to kafka.replication"),
    ],
)
def test_what_does_not_fit_together_is_a_sentence(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace(".", r"\.")):
        KafkaConfig(**wrong).check()


def test_plain_clients_need_nothing() -> None:
    assert client_settings(KafkaConfig(servers="a:1")) == {"bootstrap_servers": "a:1", "security_protocol": "PLAINTEXT"}


def test_a_client_with_everything(tmp_path: Path, secret: str) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("host7")
    files = {"ca_file": str(authority.ca_file), "cert_file": str(cert), "key_file": str(key), "password_file": secret}
    config = KafkaConfig(servers="a:1", **files, **WHO)  # type: ignore[arg-type]
    config.check()
    made = client_settings(config)
    context = made.pop("ssl_context")
    assert isinstance(context, ssl.SSLContext)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert made == {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "sdf-agent",
        "sasl_plain_password": SECRET,
    }
    assert librdkafka_settings(config) == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.ca_file),
        "ssl.certificate.location": str(cert),
        "ssl.key.location": str(key),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "sdf-agent",
        "sasl.password": SECRET,
    }


def test_a_password_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    config = KafkaConfig(password_env="SDF_TEST_PASSWORD", **WHO)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"kafka\.password_env: the environment has no variable SDF_TEST_PASSWORD"):
        password(config)
    monkeypatch.setenv("SDF_TEST_PASSWORD", SECRET)
    assert password(config) == SECRET


@pytest.mark.parametrize(
    ("content", "sentence"),
    [(None, "No such file"), (b"", "is empty"), (b"\nx", "is empty"), (b"\xff\xfe", "not text in UTF-8")],
)
def test_a_password_file_that_cannot_be_used_is_named(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"kafka\.password_file: .*{sentence}"):
        password(KafkaConfig(password_file=str(path), **WHO))  # type: ignore[arg-type]


def test_files_that_are_no_certificates_are_named(tmp_path: Path) -> None:
    authority, rubbish = Authority(tmp_path), tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    cert, key = authority.issue("host7")
    ca = str(authority.ca_file)

    def refused(**files: str) -> str:
        with pytest.raises(ConfigError) as caught:
            client_settings(KafkaConfig(servers="a:1", security="SSL", **files))  # type: ignore[arg-type]
        return str(caught.value)

    assert "kafka.ca_file" in refused(ca_file=str(rubbish))
    assert "No such file" in refused(ca_file=str(tmp_path / "absent"))
    assert "kafka.cert_file" in refused(ca_file=ca, cert_file=str(tmp_path / "absent"), key_file=str(key))
    assert "kafka.key_file" in refused(ca_file=ca, cert_file=str(cert), key_file=str(tmp_path / "absent"))
    _, other = authority.issue("other")
    assert "kafka.key_file" in refused(ca_file=ca, cert_file=str(cert), key_file=str(other))


def test_an_encrypted_key_is_refused_without_asking_on_the_terminal(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    cert, key_file = authority.issue("host7")
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"x")
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
    )  # fmt: skip
    script = (
        "from sdfstream.bus.kafka.config import KafkaConfig\n"
        "from sdfstream.bus.kafka.security_io import client_settings\n"
        f"client_settings(KafkaConfig(security='SSL', ca_file={str(authority.ca_file)!r}, cert_file={str(cert)!r}, "
        f"key_file={str(key_file)!r}))"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert "ConfigError: kafka.key_file" in done.stderr
    assert "pass phrase" not in (done.stdout + done.stderr).lower()


SECURE = """
kafka:
  security: SASL_SSL
  ca_file: /etc/sdfstream/ca.pem
  user: sdf-agent
  password_file: /etc/sdfstream/password
  compression: zstd
  stall_s: 20
  topics: [{match: sdf.raw.*, retention_h: 2}]
  principals: {agent: ["User:CN=host7", "User:CN=host8"]}
"""


def test_agents_read_what_the_pipeline_reads(tmp_path: Path) -> None:
    """With pydantic and without: the same part of the same file."""
    file = tmp_path / "sdf.yaml"
    file.write_text(SECURE)
    chosen = settings.load(file).kafka
    assert chosen.topics == (TopicRule("sdf.raw.*", retention_h=2.0),)
    assert chosen.principals.agent == ("User:CN=host7", "User:CN=host8")
    assert read(KafkaConfig, yaml.safe_load(SECURE)["kafka"], "kafka") == chosen
    file.write_text(settings.dump(settings.Settings(kafka=chosen)))
    assert settings.load(file).kafka == chosen
    assert read(KafkaConfig, yaml.safe_load(file.read_text())["kafka"], "kafka") == chosen


AGENT = """
hosts: [{host: h1, nics: [{nic: h1/eth0, device: eth0, address: 10.0.0.1}]}]
"""


def given(**options: Path | None) -> argparse.Namespace:
    return argparse.Namespace(**{"config": None, "kafka": None, "peer": [], "reflect_only": False, **options})


def test_an_agents_file_may_hold_the_settings_of_kafka(tmp_path: Path) -> None:
    beside, alone, other = (tmp_path / name for name in ("beside.yaml", "alone.yaml", "other.yaml"))
    beside.write_text(AGENT + SECURE)
    alone.write_text(AGENT)
    other.write_text("kafka: {prefix: lab.}\n")
    kafka = agent.kafka_of(given(config=beside))
    assert kafka is not None
    assert (kafka.security, kafka.user) == ("SASL_SSL", "sdf-agent")
    assert agent.configuration(given(config=beside)) == agent.configuration(given(config=alone))
    assert agent.kafka_of(given(config=alone)) is None
    assert agent.kafka_of(given()) is None
    assert agent.kafka_of(given(config=beside, kafka=other)) == KafkaConfig(prefix="lab.")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kafka: {secrity: SSL}", "unknown key 'kafka.secrity'"),
        ("kafka: {password: hunter2}", "unknown key 'kafka.password'"),
        ("kafka: {security: TLS}", "kafka.security must be PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
        ("kafka: {security: SASL_SSL}", "kafka.user is missing"),
        ("kafka: {topics: [{match: 5}]}", "kafka.topics.0.match must be text"),
        ("agent: 5", "there is no key 'kafka'"),
    ],
)
def test_a_wrong_kafka_section_of_an_agent_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "kafka.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        agent.kafka_of(given(kafka=file))
    assert str(caught.value).startswith(str(file))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("kafka: {secrity: SSL}", "unknown key 'kafka.secrity'"),
        ("kafka: {password: hunter2}", "unknown key 'kafka.password'"),
        ("kafka: {security: TLS}", "key 'kafka.security'"),
        ("kafka: {security: SASL_SSL}", "kafka.user is missing"),
        ("kafka: {servers: 'a:1'}", "brokers are named by bus: kafka://HOST:PORT"),
        ("kafka: {principals: {agent: [bob]}}", "kafka.principals.agent.0 must be User:NAME"),
        ("kafka: {principals: {agent: ['User:*']}}", "kafka.principals.agent.0 must be User:NAME"),
    ],
)
def test_a_wrong_kafka_section_of_the_settings_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "sdf.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings.load(file)
    assert sentence in str(caught.value)


def test_no_password_is_ever_printed(tmp_path: Path, secret: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "sdf.yaml"
    file.write_text(f"bus: kafka://127.0.0.1:1\nkafka: {{security: SASL_SSL, user: u, password_file: {secret}}}\n")
    assert main(["config", "show", str(file)]) == 0
    assert main(["topics", "check", "--config", str(file)]) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert SECRET not in repr(settings.load(file))


def test_an_agent_with_a_kafka_section_loads_neither_pydantic_nor_kafkas_client(tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(AGENT + SECURE)
    script = (
        "import sys, argparse, pathlib\nfrom sdfstream.cli import agent\n"
        f"made = agent.kafka_of(argparse.Namespace(config=pathlib.Path({str(file)!r}), kafka=None))\n"
        "print(made.user, 'pydantic' in sys.modules, 'aiokafka' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "sdf-agent False False\n"
