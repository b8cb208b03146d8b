"""The verb `topo`: for people, as JSON, for Slurm; and what it says where nothing is known."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sdfstream.cli import main, topo

ANSWER: dict[str, Any] = {
    "at_ns": 0, "by": "measured", "source": {"kind": "pipeline"}, "nodes": [], "nics": [], "links": [],
    "groups": [{"name": "group0", "hosts": ["h0", "h1"], "switches": []}], "unplaced": ["h2"],
}  # fmt: skip


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    answer = dict(ANSWER)
    monkeypatch.setattr(topo, "ask", lambda args, request: answer | {"asked": request["want"]})
    return answer


@pytest.mark.usefixtures("answers")
def test_people_read_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo"]) == 0
    said = capsys.readouterr().out
    assert "1 group, by the least round trips" in said
    assert "h[0-1]" in said
    assert "not told apart       h2" in said


@pytest.mark.usefixtures("answers")
def test_programs_read_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "--json"]) == 0
    said = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert said["groups"] == ANSWER["groups"]
    assert said["asked"] == "topology"


@pytest.mark.usefixtures("answers")
def test_slurm_gets_its_file_alone_and_people_what_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topo", "--format", "slurm"]) == 0
    said = capsys.readouterr()
    assert all(line.startswith(("#", "SwitchName=")) for line in said.out.splitlines())
    assert "SwitchName=group0 Nodes=h[0-1]" in said.out
    assert "1 hosts are left out" in said.err


def test_without_a_group_it_says_so(answers: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    answers["groups"] = []
    assert main(["topo"]) == 2
    assert "do not tell which hosts share a switch" in capsys.readouterr().err
