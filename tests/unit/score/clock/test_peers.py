"""Others on the same draws: their sign and time are right, and their absence is said in a sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from sdfstream.errors import ConfigError
from sdfstream.score.clock import peers, plots
from sdfstream.score.clock.cases import BY_NAME
from sdfstream.score.clock.sim import mesh, pair


def test_every_estimator_of_ntpstats_follows_a_quiet_clock() -> None:
    pytest.importorskip("ntpstats")
    world = pair("A", 16, 1)
    world.messages(40.0)
    found = peers.estimates(world, 40.0)
    assert set(found) == {*peers.NTPSTATS, peers.WINDOW_JOINED, peers.WINDOW_END}
    for name, estimate in found.items():
        error = peers.errors(world, estimate, 20.0, np.inf)
        assert 0.1 < peers.figures(error)["rms"] < 50.0, name  # 1 ms and 10 ppm off: sign and time are right


def test_the_window_model_runs_on_a_mesh_without_ntpstats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ntpstats", None)
    world = mesh(6, 4, "A", 16, 1)
    world.messages(12.0)
    found = peers.estimates(world, 12.0)
    assert set(found) == {peers.MESH_JOINED, peers.MESH_END}
    for estimate in found.values():
        error = peers.errors(world, estimate, 4.0, np.inf)
        assert error.size and np.abs(error).max() < 30.0
    some = peers.errors(world, found[peers.MESH_END], 4.0, np.inf, {"h01"})
    assert some.size == 5


def test_nothing_estimated_is_the_worst_figure() -> None:
    for error in (np.empty(0), np.array([1.0, np.nan])):
        assert peers.figures(error) == {"rms": np.inf, "p99": np.inf, "max": np.inf}


def test_clocks_in_trouble_are_left_out() -> None:
    found = peers.errors_of(BY_NAME["liars"], 1, {peers.MESH_END})
    ends = np.arange(2.0, 30.1, 2.0)
    assert found[peers.MESH_END].size == (40 - 1 - 2) * ((ends >= 15) & (ends < np.inf)).sum()


@pytest.mark.parametrize(("module", "package"), [(peers, "ntpstats"), (plots, "matplotlib")])
def test_what_is_not_installed_is_named(module: object, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"package {package}: pip install"):
        module.require()  # type: ignore[attr-defined]


def test_pictures_are_drawn_small_and_alike(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from sdfstream.score.clock.tracks import Track

    at = np.arange(0, 120, 0.1)
    track = Track(at, 10 * np.sin(at), np.full(at.size, 40.0), np.full(at.size, "synced"), np.zeros(at.size))
    stepped = track._replace(error=np.where((at > 30) & (at < 31), 250e3, track.error))
    result = {name: {"covered": 0.9995, "worst": {"covered": 0.98}} for name in BY_NAME}
    for folder in ("one", "two"):
        plots.over_time(tmp_path / folder / "a.svg", "error", {"b": track, "c": track}, (50.0, 80.0))
        plots.over_time(tmp_path / folder / "b.svg", "step", {"b": stepped}, None)
        plots.distribution(tmp_path / folder / "c.svg", "beside", {"ours": track.error, "other": track.error})
        plots.coverage(tmp_path / folder / "d.svg", result)
    for name in "abcd":
        one, two = ((tmp_path / folder / f"{name}.svg").read_bytes() for folder in ("one", "two"))
        assert one == two and one.startswith(b"<?xml") and len(one) < 150_000
