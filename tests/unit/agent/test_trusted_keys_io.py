"""The keys that an agent trusts, as its configuration names them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from sdfstream.agent.trusted_keys_io import trusted
from sdfstream.errors import ConfigError
from tests.fixtures import control as c

KEY = base64.b64encode(c.SIGNER.public).decode()


def test_trusted_keys_are_base64_or_files(tmp_path: Path) -> None:
    raw, text = tmp_path / "raw.pub", tmp_path / "text.pub"
    raw.write_bytes(c.SIGNER.public)
    text.write_text(KEY + "\n")
    for keys in ((KEY,), (str(raw),), (str(text),), (KEY, str(raw))):
        assert trusted(keys).refuses(c.SIGNER.sign({"a": 1})) == ""
    for keys in ((), ("nonsense",), (str(tmp_path / "none"),), (base64.b64encode(b"short").decode(),)):
        with pytest.raises(ConfigError):
            trusted(keys)


def test_a_path_as_long_as_a_key_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("./keys") / ("c" * (len(KEY) - len("keys/") - len(".pub")) + ".pub")
    path.parent.mkdir()
    path.write_text(KEY)
    assert len(str(path)) == len(KEY)
    assert trusted([str(path)]).refuses(c.SIGNER.sign({"a": 1})) == ""
