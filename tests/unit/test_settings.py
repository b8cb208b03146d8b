"""A configuration error is a sentence with the path of the key."""

from pathlib import Path

import pytest
import yaml

from sdfstream import settings
from sdfstream.agent.config_file import read_agent
from sdfstream.errors import ConfigError

AGENT = """
agent:
  hosts:
  - host: h1
    nics: [{nic: h1/eth0, device: eth0, address: 10.0.0.1}]
    sessions:
    - {src: h1/eth0, dst: h2/eth0, dst_address: 10.0.0.2, source_ports: [50000, 50001]}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "sdf.yaml"
    path.write_text(text)
    return path


def test_defaults_survive_a_round_trip(tmp_path: Path) -> None:
    defaults = settings.Settings()
    assert settings.load(write(tmp_path, settings.dump(defaults))) == defaults


def test_an_agent_that_was_written_is_read_back(tmp_path: Path) -> None:
    agent = settings.load(write(tmp_path, AGENT)).agent
    assert agent is not None
    assert agent.hosts[0].sessions[0].source_ports == (50000, 50001)
    assert read_agent(yaml.safe_load(settings.dump(agent))) == agent


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("busy: memory", "unknown key 'busy'"),
        (AGENT.replace("device:", "devise:"), r"unknown key 'agent.hosts.0.nics.0.devise'"),
        (AGENT.replace("dst_address: 10.0.0.2, ", ""), "key 'agent.hosts.0.sessions.0.dst_address' is missing"),
        (AGENT.replace("[50000, 50001]", "many"), "agent.hosts.0.sessions.0.source_ports"),
        ("- a\n- b", "keys and values"),
        ("a: [", "not YAML"),
    ],
)
def test_wrong_keys_are_named_with_their_path(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        settings.load(write(tmp_path, text))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        settings.load(tmp_path / "absent.yaml")


def test_the_environment_names_the_alertmanager_above_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("alerts: { alertmanager: 'http://file:9093', repeat_s: 30 }\n")
    assert settings.load(file).alerts.alertmanager == "http://file:9093"
    monkeypatch.setenv("SDFSTREAM_ALERTMANAGER", "")
    assert settings.load(file).alerts.alertmanager == "http://file:9093"
    monkeypatch.setenv("SDFSTREAM_ALERTMANAGER", "http://ops:hunter2@env:9093")
    chosen = settings.load(file)
    assert (chosen.alerts.alertmanager, chosen.alerts.repeat_s) == ("http://ops:hunter2@env:9093", 30)
    assert "hunter2" not in settings.dump(chosen)
    assert settings.load(None).alerts.alertmanager == "http://ops:hunter2@env:9093"
    monkeypatch.setenv("SDFSTREAM_ALERTMANAGER", "am:9093")
    with pytest.raises(ConfigError, match=r"alerts\.alertmanager"):
        settings.load(None)
    file.write_text("alerts: 3\n")
    with pytest.raises(ConfigError, match="alerts"):
        settings.load(file)
