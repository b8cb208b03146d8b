"""Clock estimates against simulated truth, with limits; laws as in docs/sync.md. Seeds are printed with the figures.

Short runs of what ``sdfstream score clock`` does at length: the limits leave room for the slow first minute.
"""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.score.clock_laws import BY_NAME, run
from sdfstream.score.clock_sim import drive, mesh, pair
from sdfstream.score.clock_tracks import figures, tracks
from sdfstream.sync import SyncStage


@pytest.mark.parametrize(
    ("name", "rate", "rms_limit", "max_limit"),
    [("B", 64.0, 40.0, 150.0), ("A", 16.0, 3.0, 12.0), ("L40", 64.0, 15.0, 80.0)],
)
def test_a_pair_is_within_its_limits_and_its_bound(name: str, rate: float, rms_limit: float, max_limit: float) -> None:
    found = []
    for seed in (1, 2, 3):
        world = pair(name, rate, seed)
        found.append(figures(tracks(world, drive(SyncStage(), world.messages(45.0))), 20.0))
    told = {k: [round(f[k], 3) for f in found] for k in ("rms", "max", "covered", "bound")}
    print(f"law {name} {rate:g}/s seeds 1-3: {told}")
    assert np.median(told["rms"]) <= rms_limit
    assert max(told["max"]) <= max_limit
    assert np.mean(told["covered"]) >= 0.999


def test_a_mesh_is_within_its_limits_and_its_bound() -> None:
    world = mesh(12, 6, "B", 64.0, seed=1)
    found = figures(tracks(world, drive(SyncStage(), world.messages(35.0))), 20.0)
    print(f"mesh 12 x 6, law B, seed 1: {found}")
    assert found["rms"] <= 50.0
    assert found["covered"] >= 0.99


def test_a_step_is_told_and_disturbs_no_other_clock() -> None:
    found = run(BY_NAME["step"], 1)
    print(f"step of 250 µs, seed 1: {found}")
    assert found["told_s"] <= 2.0
    assert found["inside_s"] <= 15.0
    assert found["others_ratio"] <= 1.5


def test_a_standing_queue_is_booked_as_delay() -> None:
    found = run(BY_NAME["queue"], 1)
    print(f"30 s standing queue, seed 1: {found}")
    assert found["p99"] <= 200.0
    assert found["least_shown"] >= 0.99
    assert found["covered"] >= 0.999
