"""Where bus and archive are, told by the environment; and the verb that migrates an archive."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from sdfstream import cli, settings
from sdfstream.archive.http.server_io import SqlFront
from sdfstream.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in (*settings.ENVIRONMENT_KEYS, "config"):
        monkeypatch.delenv(f"SDFSTREAM_{key.upper()}", raising=False)


def test_the_environment_stands_above_the_file_and_empty_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("bus: kafka://file:9092\ncluster: from-file\n")
    monkeypatch.setenv("SDFSTREAM_CONFIG", str(file))
    monkeypatch.setenv("SDFSTREAM_BUS", "kafka://env:9092")
    monkeypatch.setenv("SDFSTREAM_CLUSTER", "")
    monkeypatch.setenv("SDFSTREAM_DATA", str(tmp_path / "d"))
    chosen = settings.load(None)
    assert (chosen.bus, chosen.cluster, chosen.data) == ("kafka://env:9092", "from-file", tmp_path / "d")
    assert settings.load(file).bus == "kafka://env:9092"


def test_without_either_all_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings.load(None) == settings.Settings()
    monkeypatch.setenv("SDFSTREAM_ARCHIVE", "http://u:p@h:8123/sdf")
    assert settings.load(None).archive == "http://u:p@h:8123/sdf"
    assert set(settings.ENVIRONMENT_KEYS) <= settings.Settings.model_fields.keys()


def test_migrate_makes_an_archive_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", "migrate", "--data", str(tmp_path), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["applied"][0] == "0001_tables.sql"
    assert first["applied"][-1] == first["newest"]
    assert cli.main(["archive", "migrate", "--data", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["applied"] == []


def test_migrate_waits_for_a_server_that_is_only_starting(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    fronts: list[SqlFront] = []

    def later() -> None:
        time.sleep(0.5)
        fronts.append(SqlFront.start(str(tmp_path / "server"), port=port, token="secret"))

    starting = threading.Thread(target=later)
    starting.start()
    try:
        monkeypatch.setenv("SDFSTREAM_ARCHIVE", f"http://default:secret@127.0.0.1:{port}/sdf")
        assert cli.main(["archive", "migrate", "--wait", "30"]) == 0
        said = capsys.readouterr()
        assert "waiting for the archive" in said.err
        assert "applied 0001_tables.sql" in said.out
        assert "secret" not in said.out + said.err
        began_s = time.monotonic()
        wrong = f"http://default:wrong@127.0.0.1:{port}/sdf"
        assert cli.main(["archive", "migrate", "--archive", wrong, "--wait", "30"]) == 2
        assert time.monotonic() - began_s < 20  # a wrong password does not come right by waiting
    finally:
        starting.join()
        for front in fronts:
            front.close()


def test_migrate_says_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["archive", "migrate", "--archive", "http://127.0.0.1:1/sdf"]) == 2
    assert cli.main(["archive", "migrate", "--archive", "ftp://x"]) == 2
    said = capsys.readouterr().err
    assert "no ClickHouse answers" in said
    assert "scheme ftp" in said


def test_an_environment_that_is_wrong_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SDFSTREAM_CONFIG", str(tmp_path / "absent.yaml"))
    with pytest.raises(ConfigError, match=r"absent\.yaml"):
        settings.load(None)
