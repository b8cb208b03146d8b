"""The shipped recording is of real packets in a lab, whose hosts share one kernel clock: every true offset is 0."""

from __future__ import annotations

import filecmp
import json
from importlib import resources
from pathlib import Path

import polars as pl
import pytest

from sdfstream.cli import main


@pytest.fixture(scope="module")
def replays(shipped_replay: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The shipped recording through sync and detect, twice: here, and in a process of its own with an archive."""
    here = tmp_path_factory.mktemp("replays") / "here"
    with resources.as_file(resources.files("sdfstream.demo") / "shipped_recording") as recording:
        assert main(["replay", str(recording), "--out", str(here), "--json"]) == 0
    return here, shipped_replay


def test_two_replays_give_the_same_bytes(replays: tuple[Path, Path]) -> None:
    names = sorted(p.name for p in replays[0].iterdir() if p.is_file())
    assert {"sdf.state.clock.v1.arrows", "sdf.derived.owd.v1.arrows", "sdf.event.finding.v1.jsonl"} <= set(names)
    assert names == sorted(p.name for p in replays[1].iterdir() if p.is_file())
    _, mismatch, errors = filecmp.cmpfiles(*replays, names, shallow=False)
    assert not mismatch
    assert not errors


def test_clocks_are_within_their_bound_of_the_truth(replays: tuple[Path, Path]) -> None:
    text = [pl.col(name).cast(pl.String) for name in ("clock", "status", "kind")]
    rows = pl.read_ipc_stream(replays[0] / "sdf.state.clock.v1.arrows").with_columns(text)
    first_ns = rows["bus_at_ns"].min()
    assert isinstance(first_ns, int)
    settled = rows.filter(
        (pl.col("kind") == "causal") & (pl.col("status") == "synced") & (pl.col("bus_at_ns") > first_ns + 5 * 10**9)
    )
    error = settled["offset_ns"].abs()
    covered = float((settled["offset_ns"].abs() <= settled["err_ns"]).mean() or 0.0)
    print(
        f"{settled.height} rows: |error| median {error.median():.0f}, max {error.max():.0f} ns; covered {covered:.4f}"
    )
    assert covered >= 0.999
    assert float(error.median() or 1e9) <= 500.0
    assert float(error.max() or 1e9) <= 5_000.0  # type: ignore[arg-type]


def test_each_window_of_a_path_has_one_row(replays: tuple[Path, Path]) -> None:
    rows = pl.read_ipc_stream(replays[0] / "sdf.derived.owd.v1.arrows")
    keys = ["at_ns", "src", "dst", "transport", "path", "dscp", "dir"]
    text = [pl.col(name).cast(pl.String) for name in ("src", "dst", "transport", "dir")]
    assert rows.with_columns(text).select(keys).is_duplicated().sum() == 0


def test_all_faults_are_found(replays: tuple[Path, Path]) -> None:
    from sdfstream.score.match import match

    with resources.as_file(resources.files("sdfstream.demo") / "shipped_recording") as recording:
        faults = [json.loads(line) for line in (recording / "truth" / "faults.jsonl").read_text().splitlines()]
    lines = (replays[0] / "sdf.event.finding.v1.jsonl").read_text().splitlines()
    said = [json.loads(line)["value"] for line in lines]
    card = match(faults, [value.get("data", value) for value in said]).as_dict()
    print({k: card[k] for k in ("right", "near", "wrong", "missed", "false_alarms")})
    assert card["right"] + card["near"] == 4
    assert card["right"] >= 3
    assert card["false_alarms"] <= 1
