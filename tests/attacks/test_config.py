"""Row 12: a settings file that costs minutes, hangs or ends in a traceback, and secrets that are echoed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sdfstream import cli, settings
from sdfstream.agent.config_file import read_agent
from sdfstream.archive.target import parse
from sdfstream.errors import ConfigError
from sdfstream.probes.config import AgentConfig, HostConfig, NicConfig, SessionConfig
from sdfstream.probes.load import MOST_PATHS, MOST_PPS, MOST_SESSIONS, check_load

SECRET = "hunter2Hunter2"
HOST = "hosts: [{host: h1, nics: [{nic: h1/a, device: a, address: 10.0.0.1}]}]"
BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
VERBS_THAT_READ = (
    ["config", "check", "FILE"],
    ["config", "show", "FILE"],
    ["agent", "--config", "FILE", "--out", "OUT"],
    ["plan", "draw", "--inventory", "FILE"],
    ["twin", "FILE", "--out", "OUT"],
    ["topics", "list", "--config", "FILE", "--bus", "kafka://127.0.0.1:1"],
)


def said_by(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, *verb: str) -> tuple[int, str]:
    """Exit code of a verb on a file with `text`, and all that it printed."""
    file = tmp_path / "sdf.yaml"
    file.write_text(text)
    code = cli.main([{"FILE": str(file), "OUT": str(tmp_path / "out")}.get(word, word) for word in verb])
    out, err = capsys.readouterr()
    return code, out + err


@pytest.mark.parametrize("verb", VERBS_THAT_READ, ids=lambda verb: " ".join(verb[:2]))
@pytest.mark.parametrize("text", [BOMB, "a: " + "[" * 50_000, "- " * 5_000 + "x", "a: 1\na: 2", "d: 2027-02-31"])
@pytest.mark.timeout(60)
def test_a_hostile_file_is_one_line_with_its_number(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: list[str], text: str
) -> None:
    code, said = said_by(capsys, tmp_path, text, *verb)
    assert code in (1, 2)
    assert "line " in said and "Traceback" not in said
    assert len(said.splitlines()) == 1 and len(said) < 400


def sessions(n: int, ports: int = 1, rate_hz: float = 1.0) -> AgentConfig:
    nic = NicConfig("h1/a", "a", "10.0.0.1")
    numbers = tuple(range(50_000, 50_000 + ports))
    probing = tuple(SessionConfig("h1/a", f"p{i}/a", "10.0.0.2", 862, numbers, rate_hz=rate_hz) for i in range(n))
    return AgentConfig((HostConfig("h1", (nic,), probing),))


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        ((100_000,), "100,000 sessions, at most 10,000"),
        ((MOST_SESSIONS, 5), "50,000 paths .* at most 40,000"),
        ((1000, 4, 100.0), "400,000 probes per second, at most 200,000"),
    ],
)
def test_too_much_for_one_agent_is_told_with_the_number(shape: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check_load(sessions(*shape))


def test_the_largest_agent_is_accepted() -> None:
    check_load(sessions(MOST_SESSIONS, MOST_PATHS // MOST_SESSIONS, MOST_PPS / MOST_PATHS))


def test_a_hundred_thousand_sessions_are_refused_by_check_and_agent(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    one = "    - {src: h1/a, dst: p/a, dst_address: 10.0.0.2, rate_hz: 0.1}\n"
    text = "agent:\n  hosts:\n  - host: h1\n    nics: [{nic: h1/a, device: a, address: 10.0.0.1}]\n    sessions:\n"
    for verb in (["config", "check", "FILE"], ["agent", "--config", "FILE", "--out", "OUT"]):
        code, said = said_by(capsys, tmp_path, text + one * 100_000, *verb)
        assert code in (1, 2)
        assert "line 6: key 'sessions' has more than 10,000 entries" in said


def test_check_refuses_what_the_agent_would(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, said = said_by(capsys, tmp_path, f"agent: {{liveness_ms: 1, {HOST}}}", "config", "check", "FILE")
    assert code == 1
    assert "agent.liveness_ms must lie within 50" in said


MISTYPED = (
    f"agent: {{hmac_key: [{SECRET}], {HOST}}}",
    f"agent: {{hmac_key: {{x: {SECRET}}}, {HOST}}}",
    f"agent: {{hmac_key: !{SECRET} x, {HOST}}}",
    f"agent: {{hmac_key: *{SECRET}, {HOST}}}",
    f'agent: {{hmac_key: "{SECRET}\\q", {HOST}}}',
    f"agent: {{hmac_key:{SECRET}, {HOST}}}",
    f"agent: {{hmac_key {SECRET}, {HOST}}}",
    f"agent: {{hmackey: {SECRET}, {HOST}}}",
    f"agent: {{hosts: {SECRET}, hmac_key: {SECRET}}}",
    f"agent: {{flush_ms: {{hmac_key: {SECRET}}}, {HOST}}}",
    f"agent: {{flush_ms: password={SECRET}1234567, {HOST}}}",
    f"agent: {{control: true, trusted_keys: [{SECRET}], {HOST}}}",
    f"agent: {{trusted_keys: {SECRET}, {HOST}}}",
    f"agent: hmac_key={SECRET}",
    f"hmac_key: {SECRET}",
    f"password: {SECRET}",
    f"archive: [http://ops:{SECRET}@ch:8123/sdf]",
    f"archive: {{url: {SECRET}}}",
    f"kafka: {{password: {SECRET}}}",
    f"kafka: {{password_file: [{SECRET}]}}",
    f"kafka: {{security: {SECRET}}}",
    f"kafka: {SECRET}",
    f"bus: [kafka://ops:{SECRET}@b:9092]",
    f"sync: {{password {SECRET}: 1}}",
)


@pytest.mark.parametrize("text", MISTYPED)
def test_a_mistyped_secret_is_not_echoed(capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str) -> None:
    for verb in (["config", "check", "FILE"], ["config", "show", "FILE", "--json"], ["agent", "--config", "FILE"]):
        if "show" in verb and "trusted_keys: [" in text:
            continue  # public keys: shown
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("sdfstream.agent.process_io.run", _not_reached)
            code, said = said_by(capsys, tmp_path, text, *verb)
        if "check" in verb or "show" in verb or text.startswith("agent: {"):
            assert code in (1, 2) or "trusted_keys" in text
        assert SECRET not in said


async def _not_reached(*_: Any, **__: Any) -> dict[str, Any]:
    raise ConfigError("it started")


def test_a_number_as_key_is_not_echoed(tmp_path: Path) -> None:
    raw = {"hmac_key": 987654321, "hosts": []}
    with pytest.raises(ConfigError) as refused:
        read_agent(raw)
    assert "987654321" not in str(refused.value)
    file = tmp_path / "sdf.yaml"
    file.write_text(json.dumps({"agent": raw}))
    with pytest.raises(ConfigError) as refused:
        settings.load(file)
    chain: BaseException | None = refused.value
    while chain is not None:  # what a traceback would print
        assert "987654321" not in str(chain) + repr(chain)
        chain = chain.__cause__ or chain.__context__


def test_what_is_printed_of_good_settings_has_no_secret(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = f"archive: http://ops:{SECRET}@ch:8123/sdf\nagent: {{hmac_key: {SECRET}, {HOST}}}"
    for more in ([], ["--json"]):
        code, said = said_by(capsys, tmp_path, text, "config", "show", "FILE", *more)
        assert code == 0 and "(hidden)" in said and SECRET not in said
    loaded = settings.load(tmp_path / "sdf.yaml")
    assert loaded.agent is not None and loaded.agent.hmac_key == SECRET.encode()
    assert SECRET not in repr(loaded) + str(loaded) + repr(parse(loaded.archive or ""))
    shown = tmp_path / "shown.yaml"
    shown.write_text(settings.dump(loaded))
    with pytest.raises(ConfigError, match="'archive' holds \\(hidden\\)"):
        settings.load(shown)


@pytest.mark.parametrize("url", [f"http://ops:pa/{SECRET}@ch:8123/sdf", f"http://ops:{SECRET}#@ch:x/sdf", f"{SECRET}"])
def test_a_password_with_a_slash_is_not_echoed(url: str) -> None:
    try:
        target = parse(url)
    except ConfigError as error:
        assert SECRET not in str(error)
    else:
        assert SECRET not in repr(target) or "://" not in url
