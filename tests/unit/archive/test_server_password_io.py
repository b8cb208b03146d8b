"""A server's password from a file or the environment, and the warning where it stands in the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream.archive.server_password_io import VARIABLE, with_password
from sdfstream.archive.target import Server, parse
from sdfstream.cli import main
from sdfstream.errors import ConfigError


def test_from_a_file_from_the_environment_from_the_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    file = tmp_path / "password"
    file.write_text("p@ss:/?\n")
    assert parse(with_password("http://ops@h:1/d", file)) == Server("h", 1, "ops", "p@ss:/?", "d")
    assert parse(with_password("http://h:1/d", file)) == Server("h", 1, "default", "p@ss:/?", "d")
    assert with_password("http://ops:x@h:1/d", file) == "http://ops:x@h:1/d"
    assert with_password("http://ops@h:1/d", None) == "http://ops@h:1/d"
    assert with_password("a/folder", file) == "a/folder"
    monkeypatch.setenv(VARIABLE, "env")
    assert parse(with_password("https://ops@[::1]:1/d", None)) == Server("::1", 1, "ops", "env", "d", True)
    with pytest.raises(ConfigError, match="--password-file"):
        with_password("http://h/d", tmp_path / "none")


def test_a_password_in_the_command_line_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "--url", "http://u:secret@127.0.0.1:1/x", "SELECT 1"]) == 2
    said = capsys.readouterr().err
    assert "process list" in said
    assert VARIABLE in said
    assert "secret" not in said
