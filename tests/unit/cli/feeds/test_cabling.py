"""``sdfstream cabling``: what it says of a file, and what it refuses. On a broker: `test_cabling_kafka`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdfstream.cli import main
from tests.unit.plan.test_cabling_file import cabling


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cabling.json"
    path.write_text(json.dumps(cabling()))
    return path


def test_a_file_is_checked_and_nothing_is_published(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cabling", str(file), "--check"]) == 0
    assert "2 nodes, 3 links, 2 NICs: nothing is wrong with it" in capsys.readouterr().out
    assert main(["cabling", str(file), "--check", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said == {"links": 3, "nics": 2, "nodes": 2, "published": False, "speeds_mbps": {"400000": 3}}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "needs --bus kafka://HOST:PORT"),
        (["--bus", "memory"], "needs --bus kafka://HOST:PORT"),
        (["--bus", "kafka://127.0.0.1:1"], "looking for a broker"),
    ],
)
def test_where_it_cannot_be_published_is_said(
    file: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cabling", str(file), *words]) == 2
    assert says in capsys.readouterr().err


def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    assert main(["cabling", str(path), "--check"]) == 2
    assert "No such file" in capsys.readouterr().err
    path.write_text("nodes: []\nlinks: []\nnics: []\nracks: []\n")
    assert main(["cabling", str(path), "--check"]) == 2
    assert "c.yaml: unknown key 'racks'" in capsys.readouterr().err
