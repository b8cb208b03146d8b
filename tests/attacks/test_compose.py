"""The pilot opens nothing to a stranger: no known password, one door, images that cannot be exchanged."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.fixtures.compose import FILE, MADE, ROOT, compose


def test_without_made_passwords_it_does_not_start() -> None:
    for name in MADE:
        with pytest.raises(AssertionError, match=name):
            compose({other: value for other, value in MADE.items() if other != name})


def test_no_password_stands_in_the_file_or_the_page() -> None:
    for page in (FILE, ROOT / "docs" / "pilot.md"):
        assert not re.search(r"sdfstream:sdfstream@|PASSWORD[:=]+-?\w*sdfstream", page.read_text()), page


def test_made_passwords_are_long_random_readable_by_their_owner_and_stay(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a", "b")]
    for file in files:
        file.touch(mode=0o644)
        for _ in range(2):
            done = subprocess.run([ROOT / "deploy" / "secrets.sh", file], capture_output=True, text=True, check=True)
            assert not re.search(r"[0-9a-f]{16}", done.stdout + done.stderr)
        assert file.stat().st_mode & 0o777 == 0o600
        told = dict(line.split("=") for line in file.read_text().splitlines())
        assert told.keys() == MADE.keys()
        assert all(re.fullmatch(r"[0-9a-f]{48}", value) for value in told.values())
    assert files[0].read_text() != files[1].read_text()


def test_a_bind_address_moves_the_agents_door_alone() -> None:
    services = compose({**MADE, "SDFSTREAM_BIND": "0.0.0.0", "SDFSTREAM_KAFKA_HOST": "pilot.example"})["services"]
    ports = {name: [p for p in s.get("ports", ()) if not p.startswith("127.0.0.1:")] for name, s in services.items()}
    assert {name: p for name, p in ports.items() if p} == {"kafka": ["0.0.0.0:29093:29093"]}
    told = services["kafka"]["environment"]
    doors = dict(entry.split(":") for entry in told["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert doors["AGENTS"] == "SASL_PLAINTEXT"
    advertised = dict(entry.split("://") for entry in told["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert [name for name, at in advertised.items() if "pilot.example" in at] == ["AGENTS"]
    assert told["KAFKA_AUTHORIZER_CLASS_NAME"].endswith("StandardAuthorizer")


def test_an_agents_container_holds_no_password_but_its_own() -> None:
    agent = compose(MADE)["services"]["agent"]
    assert MADE["SDFSTREAM_CLICKHOUSE_PASSWORD"] not in str(agent)


def test_every_image_is_named_by_digest() -> None:
    images = [s["image"] for s in compose(MADE)["services"].values() if not s["image"].startswith("sdfstream:")]
    images += re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert [image for image in images if not re.search(r"@sha256:[0-9a-f]{64}$", image)] == []
