"""``sdfstream plan``, the mesh on the board and in ``status``, and the page that explains it all."""

from __future__ import annotations

import doctest
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from sdfstream.agent import planned
from sdfstream.board import status_text
from sdfstream.board.board import Board
from sdfstream.cli import main
from sdfstream.plan import draw, hashing, inventory_file, rings, setcover, units
from sdfstream.plan.config import PlanConfig
from sdfstream.plan.stage import PlanStage
from sdfstream.probes.config import AgentConfig
from sdfstream.records.message import Message
from tests.checks import run
from tests.fixtures.mesh_messages import START, alive, cabling, word

PAGE = (Path(__file__).parents[3] / "docs" / "mesh.md").read_text(encoding="utf-8")
SIZES = {"hosts": 24, "rails": 2, "hosts_per_leaf": 4, "spines": 2}


def drawn(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["plan", "draw", *words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_draw_says_what_a_cluster_would_probe_and_pay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(yaml.safe_dump({"fabric": SIZES, "budget_pps": 400}))
    result = drawn(capsys, "--inventory", str(file), "--seed", "7", "--sessions")
    figures, cost, sessions = result["figures"], result["cost"], result["sessions"]
    assert (figures["hosts"], figures["nics"], figures["degree_min"]) == (24, 48, 10)
    assert len(sessions) == figures["clock_sessions"] + figures["coverage_sessions"]
    total = sum(2 * s["rate_hz"] for s in sessions)
    assert cost["host"]["mean_pps"] == pytest.approx(total / 24, abs=0.01)
    assert cost["nic"]["mean_pps"] == pytest.approx(total / 48, abs=0.01)
    assert cost["host"]["mean_bps"] == pytest.approx(cost["host"]["mean_pps"] * 8 * 166, rel=1e-4)
    assert 0 < cost["worst_share"] <= 1
    assert drawn(capsys, "--inventory", str(file), "--seed", "7", "--sessions")["sessions"] == sessions
    assert drawn(capsys, "--inventory", str(file), "--seed", "8", "--sessions")["sessions"] != sessions


def test_draw_takes_sizes_and_says_what_falls_short(capsys: pytest.CaptureFixture[str]) -> None:
    words = [w for k, v in SIZES.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    assert main(["plan", "draw", *words, "--budget", "100"]) == 0
    text = capsys.readouterr().out
    assert "24 hosts, 48 NICs, 24 clocks, 12 leaves" in text
    assert "whose budget slows its clock sessions" in text


def test_draw_takes_a_declared_topology(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [f"h{i}" for i in range(8)]
    data = dict(cabling(0, hosts).body.data)  # type: ignore[union-attr]
    file = tmp_path / "declared.json"
    file.write_text(json.dumps(data))
    figures = drawn(capsys, "--inventory", str(file))["figures"]
    assert (figures["hosts"], figures["leaves"], figures["groups"], figures["pairs"]) == (8, 8, 2, 12)
    hardware = json.loads(file.read_text()) | {"hardware_clocks": True}
    file.write_text(json.dumps(hardware))
    assert drawn(capsys, "--inventory", str(file))["figures"]["islands"] == 2


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        ([], "must be a mapping"),
        ({"fabric": SIZES, "colour": 1}, "unknown key 'colour'"),
        ({"budget_pps": 5}, "either 'fabric' or 'nics'"),
        ({"fabric": {**SIZES, "hosts": 0}}, "fabric.hosts must be"),
        ({"fabric": {"hosts": 3}}, "fabric must have the keys"),
        ({"nics": [{"id": "x"}]}, "nics.0.id must be host/nic"),
        ({"nics": [{"id": "a/0"}, {"id": "a/0"}]}, "stands twice"),
        ({"nics": ["a/0"]}, "nics must be a list"),
        ({"nics": [{"id": "a/0"}], "links": [3]}, "not as in a declared topology"),
        ({"fabric": SIZES, "budgets": {"h00": 0}}, "budgets.h00 must be"),
    ],
)
def test_a_wrong_inventory_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], raw: Any, sentence: str
) -> None:
    file = tmp_path / "i.yaml"
    file.write_text(yaml.safe_dump(raw))
    assert main(["plan", "draw", "--inventory", str(file)]) == 2
    assert sentence in capsys.readouterr().err


def test_what_cannot_be_done_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in (
        (["draw"], "give either --inventory FILE"),
        (["draw", "--inventory", str(tmp_path / "none")], "No such file"),
        (["draw", "--hosts", "4", "--epoch", "-1"], "--epoch"),
        (["show", "--data", str(tmp_path)], "no archive"),
    ):
        assert main(["plan", *words]) == 2
        assert sentence in capsys.readouterr().err


def mesh_story() -> list[Message]:
    """Words of four agents and what the stage told them."""
    hosts = [f"h{i}" for i in range(4)]
    messages = [*(word(1, h) for h in hosts), *alive(hosts, 0, 10)]
    outputs = run(PlanStage(PlanConfig(mesh="auto")), sorted(messages, key=lambda m: m.bus_at_ns), START + 10**10)
    by_host = [Message(o.topic, o.key, o.body, at, i) for i, (at, o) in enumerate(outputs)]
    return [*messages, *by_host]


def test_the_board_and_status_name_the_mesh() -> None:
    board, story = Board(), mesh_story()
    board.take(story)
    mesh = board.view(START + 10**10)["mesh"]
    assert (mesh["hosts"], mesh["obeyed"], mesh["waiting"], mesh["clock_sessions"]) == (4, 0, 0, 6)
    plans = {m.key: m.body.data["version"] for m in story if m.topic == "sdf.state.mesh.v1"}  # type: ignore[union-attr]
    board.take([word(11, host, plan=version) for host, version in plans.items()])
    board.take([word(11, "h9")])
    view = board.view(START + 11 * 10**9)
    assert (view["mesh"]["obeyed"], view["mesh"]["waiting"]) == (4, 1)
    assert 0 < view["mesh"]["worst_share"] <= 1
    text = status_text.text_of(view)
    assert "4 of 4 hosts obey the plan, 6 sessions for clocks" in text
    assert "1 host without a plan yet" in text
    assert "mesh " not in status_text.text_of(Board().view(START))
    assert not board.counters.total("refused")


def test_show_reads_the_archive(tmp_path: Path, archive_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from sdfstream.archive.config import REPLAY, ArchiveConfig
    from sdfstream.archive.writer_io import Archive

    archive = Archive.open(ArchiveConfig(target=str(archive_folder), bus_id="t", limits=REPLAY))
    archive.add_blocking(mesh_story())
    archive.close_blocking()
    assert main(["plan", "show", "--data", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [h["host"] for h in result["hosts"]] == ["h0", "h1", "h2", "h3"]
    assert result["sessions"] == sum(h["sessions"] for h in result["hosts"]) > 6
    assert main(["plan", "show", "--data", str(tmp_path), "--host", "h1"]) == 0
    assert "clock " in capsys.readouterr().out
    assert main(["plan", "show", "--data", str(tmp_path), "--host", "h7"]) == 2
    assert main(["sql", "--data", str(tmp_path), "--json", "SELECT count() AS n FROM v_mesh"]) == 0
    assert f'"n":{result["sessions"]}' in capsys.readouterr().out.replace('"n":"', '"n":').replace('"}', "}")


@pytest.mark.parametrize("module", [draw, hashing, inventory_file, rings, setcover, units])
def test_examples(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_page_names_every_setting_and_reason() -> None:
    assert not [f.name for f in fields(PlanConfig) if f"`{f.name}`" not in PAGE]
    assert not [n for n in AgentConfig.__dataclass_fields__ if n.startswith(("mesh", "large")) and f"`{n}`" not in PAGE]
    source = Path(planned.__file__).read_text(encoding="utf-8")
    reasons = {
        r
        for r in re.findall(r'"(plan-[a-z-]+)"', source)
        if r not in ("plan-budget", "plan-target", "plan-large", "plan-room")
    }
    assert len(reasons) == 9
    assert not [r for r in reasons if f"| `{r}` |" not in PAGE]
