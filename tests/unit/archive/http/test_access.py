"""Callers by their tokens; requests of web pages."""

from __future__ import annotations

import pytest

from sdfstream.archive.failures import EngineError
from sdfstream.archive.http.access import LOOPBACK_NAMES, Caller, Tokens, page_in_between


def test_callers() -> None:
    tokens = Tokens("r", "w", ": see FILE")
    assert (tokens.caller("r"), tokens.caller("w")) == (Caller.READER, Caller.WRITER)
    for wrong, words in (
        ("", "a password is needed: see FILE"),
        ("x", "the password is wrong: see FILE"),
        ("ü", "wrong"),
    ):
        with pytest.raises(EngineError, match=words):
            tokens.caller(wrong)
    with pytest.raises(EngineError):
        Tokens("r").caller("None")


@pytest.mark.parametrize(
    ("hosts", "headers", "refused"),
    [
        (["localhost:8"], {}, False), (["127.0.0.1"], {"sec-fetch-site": "none"}, False), (["[::1]:8"], {}, False),
        (["evil.example"], {}, True), ([], {}, True), ([""], {}, True), (["localhost", "evil.example"], {}, True),
        (["localhost"], {"origin": "http://localhost"}, True), (["localhost"], {"origin": "null"}, True),
        (["localhost"], {"sec-fetch-site": "cross-site"}, True), (["[::1"], {}, True),
        (["localhost.evil.example"], {}, True), (["evil.example@localhost"], {}, False),
    ],
)  # fmt: skip
def test_pages(hosts: list[str], headers: dict[str, str], refused: bool) -> None:
    assert (page_in_between(hosts, headers, LOOPBACK_NAMES) is not None) == refused


def test_an_address_with_any_name() -> None:
    assert page_in_between(["any.name:8123"], {}, None) is None
    assert page_in_between(["any.name"], {"origin": "http://any.name"}, None)
