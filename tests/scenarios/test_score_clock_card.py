"""``sdfstream score clock`` as it is typed: one quick seed of two cases, the page it writes, and how it refuses."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from sdfstream.cli import main


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``--json`` printed for one seed of two cases: its last line."""
    folder = tmp_path_factory.mktemp("card")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        cases = ["--only", "cold-start", "--only", "jitter-2"]
        assert main(["score", "clock", "--json", "--seed", "1", *cases]) == 0
    (folder / "card.json").write_text(out.getvalue())
    return folder / "card.json"


def test_one_seed_of_two_cases_is_within_generous_limits(printed: Path) -> None:
    result: dict[str, Any] = json.loads(printed.read_text().splitlines()[-1])
    assert set(result) == {"cold-start", "jitter-2"}
    for card in result.values():
        assert {"rms", "p99", "max", "covered", "limits", "met", "met_worst", "median", "worst", "seeds"} <= set(card)
        assert card["seeds"] == [1] and set(card["met"]) == set(card["limits"])
        assert card["rms"] <= card["p99"] <= card["max"]
        assert card["covered"] >= 0.95
    print({name: {k: card[k] for k in ("rms", "p99", "max", "covered")} for name, card in result.items()})
    assert result["cold-start"]["rms"] <= 100 and result["cold-start"]["median"]["microsecond_s"] <= 5
    assert result["jitter-2"]["rms"] <= 10 and result["jitter-2"]["max"] <= 50


def test_the_card_becomes_a_page_that_says_what_was_missed(printed: Path, tmp_path: Path) -> None:
    result = json.loads(printed.read_text().splitlines()[-1])
    result["jitter-2"]["met"]["bound_per_rms"] = False
    result["jitter-2"]["median"]["bound_per_rms"] = 7.25
    result["jitter-2"]["peers"] = {"somebody": {"median": {"rms": 3.0, "p99": 9.0}, "worst": {"rms": 4.0, "p99": 9.0}}}
    (tmp_path / "card.json").write_text(json.dumps(result))
    page = tmp_path / "docs" / "page.md"
    args = ["score", "clock", "--from", str(tmp_path / "card.json"), "--markdown", str(page)]
    assert main(args) == 0
    assert main([*args, "--check"]) == 1
    text = page.read_text()
    assert "- `jitter-2`: bound_per_rms 7.25 ×" in text
    assert "| somebody | 3 / 9 / – | 4 / 9 / – |" in text
    assert "chrony" in text and "clknetsim" in text and "maxdelayquant 0.02" in text
    assert text.count("`cold-start`") >= 3


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["clock", "--only", "nonesuch"], "no case 'nonesuch'; there are pair-B-64"),
        (["clock", "--seeds", "0"], "--seeds must be at least 1"),
        (["clock", "--seed", "-1"], "--seed must not be negative"),
        (["clock", "--from", "nowhere.json"], "not what --json printed"),
        (["folder", "--quick"], "--quick: only for 'sdfstream score clock'"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(
    args: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", *args]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "no json", "[]", '{"pair-B-64": {}}', '{"pair-B-64": 3}'])
def test_a_file_that_is_no_card_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "card.json").write_text(text)
    assert main(["score", "clock", "--from", str(tmp_path / "card.json")]) == 2
    assert "not what --json printed" in capsys.readouterr().err


def test_the_draws_can_be_had_as_a_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["score", "clock", "--only", "cold-start", "--seed", "3", "--write", str(tmp_path), "--json"]
    assert main(args) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == {"written": {"cold-start-3": 60 * 64}}
    files = sorted(p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file())
    names = ["recording.json", "sdf.raw.probe.v1.arrows", "truth/clock.jsonl"]
    assert files == [f"cold-start-3/{name}" for name in names]
    assert main(args) == 2, "a recording that is there is not overwritten"


def test_pictures_are_named_in_the_page(printed: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    page, folder = tmp_path / "docs" / "page.md", tmp_path / "docs" / "img"
    assert main(["score", "clock", "--from", str(printed), "--markdown", str(page), "--plots", str(folder)]) == 0
    assert "](img/clock-coverage.svg)" in page.read_text()
    assert (folder / "clock-coverage.svg").stat().st_size > 1000
