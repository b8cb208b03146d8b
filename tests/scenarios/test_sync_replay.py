"""A recording of nothing but probes, replayed with defaults and scored from its files: the figures of the score card.

The second way to the same figures: probes written to disk, ``sdfstream replay IN --out OUT``, then both our tracks of
what lies in OUT, and ``sdfstream score OUT``, which knows nothing of the simulator but the truth in its file.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sdfstream.bus.recording.reader_io import open_recording
from sdfstream.cli import main
from sdfstream.cli.score_clock import record
from sdfstream.records.message import Output
from sdfstream.score.clock.sim import World, drive, mesh
from sdfstream.score.clock.tracks import RunTracks, Track, figures, run_tracks
from sdfstream.sync import SyncStage

SECONDS = 20.0


def world() -> World:
    return mesh(5, 4, "B", 32.0, seed=1)


@cache
def direct() -> tuple[World, RunTracks]:
    """The world, and its tracks without a file in between."""
    here = world()
    return here, run_tracks(here, drive(SyncStage(), here.messages(SECONDS)), with_delays=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(IN, OUT)."""
    folder = tmp_path_factory.mktemp("clock")
    record(world(), SECONDS, folder / "in")
    assert main(["replay", str(folder / "in"), "--out", str(folder / "out"), "--json"]) == 0
    return folder / "in", folder / "out"


def test_only_probes_go_in_and_clocks_of_both_kinds_and_delays_come_out(folders: tuple[Path, Path]) -> None:
    before, after = folders
    assert sorted(p.name for p in before.iterdir()) == ["recording.json", "sdf.raw.probe.v1.arrows", "truth"]
    out = [m for m in open_recording(after).messages({"sdf.state.clock.v1", "sdf.derived.owd.v1"})]
    kinds = {k for m in out if m.topic == "sdf.state.clock.v1" for k in m.body.column("kind").to_pylist()}
    assert kinds == {"causal", "smoothed"}
    assert any(m.topic == "sdf.derived.owd.v1" and m.rows for m in out)


def test_the_files_give_the_figures_of_the_score_card(folders: tuple[Path, Path]) -> None:
    here, straight = direct()
    read = open_recording(folders[1]).messages({"sdf.state.clock.v1", "sdf.derived.owd.v1"})
    filed = run_tracks(here, [(m.bus_at_ns, Output(m.topic, m.key, m.body)) for m in read], with_delays=True)
    assert figures(filed.causal, 5.0) == figures(straight.causal, 5.0)
    assert figures(filed.smoothed, 5.0) == figures(straight.smoothed, 5.0)
    for kind in ("causal", "smoothed"):
        for name, track in getattr(straight, kind).items():
            assert _same(track, getattr(filed, kind)[name]), (kind, name)
    assert straight.delays is not None and filed.delays is not None and straight.delays.at_s.size > 500
    assert sorted(straight.delays.published.tolist()) == sorted(filed.delays.published.tolist())


def _same(one: Track, two: Track) -> bool:
    return all(bool((a == b).all()) for a, b in zip(one, two, strict=True))


def test_the_other_score_finds_the_same_errors(folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["score", str(folders[1]), "--truth", str(folders[0] / "truth"), "--json"]) == 0
    other: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])["clocks"]["causal"]
    here, straight = direct()
    rows = straight.causal
    assessed = {name: t.error[t.status == "synced"] for name, t in rows.items()}
    bounds = {name: t.bound[t.status == "synced"] for name, t in rows.items()}
    assert other["reference"] == here.reference and set(other["clocks"]) == set(assessed)
    for name, error in assessed.items():
        size, found = np.abs(error), other["clocks"][name]
        assert found["n"] == size.size > 100
        # its truth is read at whole nanoseconds, 10 ppm apart from ours
        assert found["error_p99_ns"] == pytest.approx(np.percentile(size, 99), abs=0.01)
        assert found["error_max_ns"] == pytest.approx(size.max(), abs=0.01)
        assert found["bound_held"] == pytest.approx((size <= bounds[name]).mean(), abs=1e-9)
