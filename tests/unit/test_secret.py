"""What may be a secret is not quoted."""

from __future__ import annotations

import pytest

from sdfstream.secret import HIDDEN, hidden, hidden_at, is_secret, quoted, without_password


@pytest.mark.parametrize("name", ["agent.hmac_key", "hmackey", "Password", "passwort", "api_token", "auth", "private"])
def test_names_that_suggest_a_secret(name: str) -> None:
    assert is_secret(name)
    assert quoted(name, "hunter2") == quoted(name, 12345) == quoted(f"{name}.0", b"x") == HIDDEN


def test_a_text_is_quoted_under_no_name() -> None:
    assert quoted("flush_ms", "hunter2") == "text"
    assert quoted("flush_ms", 0) == "0"
    assert quoted("agent", {"hmac_key": "hunter2"}) == "a mapping"


def test_passwords_of_urls() -> None:
    assert "p/a?s#s" not in without_password("x http://ops:p/a?s#s@ch:8123/sdf y")
    assert without_password("http://ch:8123/sdf") == "http://ch:8123/sdf"


def test_settings_are_shown_without_secrets_and_known_again() -> None:
    plain = {
        "archive": "http://a:b@c/d",
        "agent": {"hmac_key": "x", "trusted_keys": ["AAAA"], "hosts": [{"host": "h"}]},
    }
    shown = hidden(plain)
    assert shown["agent"] == {"hmac_key": HIDDEN, "trusted_keys": ["AAAA"], "hosts": [{"host": "h"}]}
    assert hidden_at(plain) is None
    assert hidden_at(shown) == "archive"
