"""The audit finds what it is for: a secret, a licence that is not allowed, a version that is known to be vulnerable."""

from __future__ import annotations

from email.message import Message

import pytest

from tests.audit import advisories, licences, secrets
from tests.audit.locked import Package, packages

KEY = "-----BEGIN " + "PRIVATE KEY-----"
MADE = "AKIA" + "QYLPMN5HHHFPZAM2"


@pytest.mark.parametrize(
    "text",
    [KEY, f"aws = '{MADE}'", "http://ops:" + "hunter3@clickhouse:8123", 'hmac_key: "' + 'c2VjcmV0LWtleS1vZi1h"'],
)
def test_a_secret_is_found_with_its_line(text: str) -> None:
    assert [line for line, *_ in secrets.secrets(f"# a file\n{text}\n")][:1] == [2]


def test_code_without_a_secret_is_clean() -> None:
    assert list(secrets.secrets('password = read(path)\nkey_file: str = ""\nurl = "http://ops@host/"\n')) == []


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [
        ("Apache-2.0 OR GPL-3.0-only", True), ("MIT AND GPL-3.0-only", False), ("", False), ("Proprietary", False),
        ("BSD-3-Clause AND (MIT OR AGPL-3.0-only)", True),
    ],
)  # fmt: skip
def test_a_licence_is_allowed_as_its_expression_says(said: str, is_allowed: bool) -> None:
    assert licences.allowed(said) is is_allowed


def test_older_metadata_is_read_by_its_words() -> None:
    about = Message()
    about["Classifier"] = "License :: OSI Approved :: MIT License"
    about["Classifier"] = "Programming Language :: Python"
    assert licences.expression(about) == "MIT"
    about["License"] = "GPL"
    assert licences.expression(about) == "MIT"
    about["License-Expression"] = "AGPL-3.0-only"
    assert licences.expression(about) == "AGPL-3.0-only"


def test_what_a_package_does_not_say_is_not_allowed() -> None:
    assert licences.expression(Message()) == ""


@pytest.mark.parametrize(
    ("version", "affected"),
    [("1.26.17", True), ("1.26.18", False), ("2.0.6", True), ("2.0.7", False), ("2.8.0", False)],
)
def test_a_version_is_affected_from_introduced_to_fixed(version: str, affected: bool) -> None:
    ranges = [[{"introduced": "2.0.0"}, {"fixed": "2.0.7"}, {"introduced": "0"}, {"fixed": "1.26.18"}]]
    assert advisories.affects({"versions": [], "ranges": ranges}, version) is affected


def test_a_range_without_an_end_and_versions_by_name_count() -> None:
    assert advisories.affects({"versions": [], "ranges": [[{"introduced": "1.0"}]]}, "9.9")
    assert advisories.affects({"versions": ["9.9"], "ranges": []}, "9.9")
    assert not advisories.affects({"versions": [], "ranges": [[{"introduced": "1"}, {"last_affected": "2"}]]}, "2.1")
    assert advisories.affects({"versions": [], "ranges": [[{"introduced": "1"}, {"last_affected": "2"}]]}, "2")


def test_the_list_finds_what_it_names_and_says_of_which_day_it_is() -> None:
    found, as_of = advisories.listed([Package("urllib3", "1.26.17"), *packages()])
    assert found
    assert {sentence.split(":")[0] for sentence in found} == {"urllib3 1.26.17"}
    assert as_of >= "2024-10-10"
