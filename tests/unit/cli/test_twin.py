"""The verb twin: a recording that replay takes, with its truth beside, the same twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sdfstream import cli

SMALL = """
fabric: {hosts: 4, leaves: 4, spines: 2}
probes: {peers: 2, ports: 1}
seconds: 6
faults:
  - {kind: nic-down, at: 3}
"""


def test_a_twins_recording_is_the_same_twice_and_replays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "s.yaml").write_text(SMALL)
    for out in ("a", "b"):
        assert cli.main(["twin", str(tmp_path / "s.yaml"), "--out", str(tmp_path / out), "--seed", "9", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["rows"]["sdf.raw.probe.v1"] > 300
    assert said["faults"][0]["kind"] == "nic-down"
    files = sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert {str(f) for f in files} >= {
        "recording.json",
        "truth/faults.jsonl",
        "truth/clock.jsonl",
        "truth/links.arrows",
    }
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert cli.main(["replay", str(tmp_path / "a"), "--out", str(tmp_path / "r"), "--stages", "sync", "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert replayed["written"]["sdf.derived.owd.v1"] > 100
    assert not [name for name in replayed["counters"] if "refused" in name]


def test_a_scenario_that_is_not_there_is_answered_with_those_that_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["twin", "lynk-down", "--out", str(tmp_path / "a")]) == 2
    assert "link-down" in capsys.readouterr().err
    assert cli.main(["twin", "link-down", "--out", str(tmp_path / "a"), "--seed", "-1"]) == 2
    assert cli.main(["score", "detect", "--peers"]) == 2
    assert "--peers" in capsys.readouterr().err
