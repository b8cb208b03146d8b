"""Tokens and roles: what is allowed, what a tokens file may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from sdfstream.errors import ConfigError, FormatError
from sdfstream.serve.api import peer, roles, tokens_io
from sdfstream.serve.api.roles import ApiRole, ApiToken


def test_a_token_gives_its_role_until_it_is_over() -> None:
    tokens = [ApiToken("a", "view", roles.hashed("one")), ApiToken("b", "admin", roles.hashed("two"), 100)]
    assert roles.role_of(tokens, "one", 0) is ApiRole.VIEW
    assert roles.role_of(tokens, "two", 99) is ApiRole.ADMIN
    assert roles.role_of(tokens, "two", 100) is None
    assert roles.role_of(tokens, "", 0) is roles.role_of(tokens, roles.hashed("one"), 0) is None, "a hash opens nothing"


def test_the_tokens_file_holds_no_token_and_is_the_owners(tmp_path: Path) -> None:
    text = tokens_io.add(tmp_path, "ci", "approve")
    file = tmp_path / tokens_io.FILE
    assert text not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    held = tokens_io.TokenFile(tmp_path)
    assert roles.role_of(held.tokens(), text, 0) is ApiRole.APPROVE
    with pytest.raises(ConfigError, match="already"):
        tokens_io.add(tmp_path, "ci", "view")
    tokens_io.remove(tmp_path, "ci")
    assert held.tokens() == [], "read anew when it changed"
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="read by others"):
        tokens_io.TokenFile(tmp_path).tokens()
    file.unlink()
    (tmp_path / "elsewhere").write_text('{"tokens": []}')
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError):
        tokens_io.read(tmp_path)


@pytest.mark.parametrize(
    "data",
    [
        [], {"tokens": "x"}, {"tokens": [{}]}, {"tokens": [{"name": "a", "role": "root", "sha256": "0" * 64}]},
        {"tokens": [{"name": "a", "role": "view", "sha256": "0" * 63}]},
        {"tokens": [{"name": "a", "role": "view", "sha256": "0" * 64, "expires_at_ns": True}]},
        {"tokens": [{"name": "a", "role": "view", "sha256": "0" * 64, "token": "x"}]},
    ],
)  # fmt: skip
def test_a_tokens_file_is_read_strictly(data: object) -> None:
    with pytest.raises(FormatError):
        roles.from_data(data)


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:24F9 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1
   1: 0100007F:9C41 0100007F:24F9 01 00000000:00000000 00:00000000 00000000  1000        0 2
   2: 0100007F:24F9 0100007F:9C41 01 00000000:00000000 00:00000000 00000000     0        0 3
   3: 0100007F:9C42 0100007F:24F9 06 00000000:00000000 00:00000000 00000000  1000        0 4
   4: 0100007F:9C43 0100007F:24F9 01 00000000:00000000 00:00000000 00000000 65534        0 5
""".splitlines()


def test_the_callers_end_of_a_connection_says_whose_it_is() -> None:
    ours = ("127.0.0.1", 9465)
    assert peer.uid_of(TABLE, ("127.0.0.1", 0x9C41), ours) == 1000, "the caller's end, not ours, which is root's"
    assert peer.uid_of(TABLE, ("127.0.0.1", 0x9C42), ours) is None, "closing"
    assert peer.uid_of(TABLE, ("127.0.0.1", 0x9C43), ours) is None, "a user of another namespace"
    assert peer.uid_of(TABLE, ("127.0.0.1", 0x9C44), ours) is None
    assert [peer.is_loopback(a) for a in ("127.8.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip
