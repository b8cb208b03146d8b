"""The token's file: made once, for its owner alone; anything else is refused with a sentence."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from sdfstream.archive.http.token_io import FILE, ensure_token
from sdfstream.errors import ConfigError


def test_it_is_made_once_and_stays(tmp_path: Path) -> None:
    token = ensure_token(tmp_path)
    assert len(token) >= 43
    assert ensure_token(tmp_path) == token
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_file_that_others_might_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("a" * 40)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="read by others"):
        ensure_token(tmp_path)
    path.chmod(0o600)
    path.write_text("short")
    with pytest.raises(ConfigError, match="fewer than"):
        ensure_token(tmp_path)
    path.unlink()
    (tmp_path / "else").write_text("b" * 40)
    path.symlink_to(tmp_path / "else")
    with pytest.raises(ConfigError, match="cannot be read"):
        ensure_token(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        ensure_token(tmp_path / "nowhere")
