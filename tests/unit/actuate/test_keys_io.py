"""The keys of controller and operators."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sdfstream.actuate import keys_io
from sdfstream.errors import ConfigError


def test_keys_are_made_once_and_private(tmp_path: Path) -> None:
    keys = keys_io.load(tmp_path)
    private = tmp_path / "keys" / "controller.key"
    assert private.stat().st_mode & 0o777 == 0o600 and len(private.read_bytes()) == 32
    assert base64.b64decode(keys.public.read_text()) == keys.signer.public == keys_io.public_key(keys.public)
    assert keys_io.load(tmp_path).signer.key_id == keys.signer.key_id and len(keys.operators) == 0
    operators = tmp_path / "keys" / "operators"
    operators.mkdir()
    ann = keys_io.private_key(tmp_path / "ann.key")
    (operators / "ann.pub").write_bytes((tmp_path / "ann.pub").read_bytes())
    assert not keys_io.load(tmp_path).operators.refuses(ann.sign({"a": 1}))
    (operators / "bad.pub").write_text("AAAA")
    with pytest.raises(ConfigError, match="3 bytes"):
        keys_io.load(tmp_path)
    private.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        keys_io.private_key(private)
