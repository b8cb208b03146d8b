"""Clock estimates against simulated truth, with limits; laws as in docs/sync.md. Seeds are printed with the figures.

Short runs of what ``sdfstream score clock`` does at length, with its limits where a run this short allows them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sdfstream.score.clock import metrics, worlds
from sdfstream.score.clock.cases import BY_NAME, run
from sdfstream.score.clock.sim import drive, pair
from sdfstream.score.clock.tracks import figures, run_tracks, tracks
from sdfstream.score.clock.worlds import liars, plain_mesh
from sdfstream.sync import SyncStage


@pytest.mark.parametrize(
    ("name", "rate", "seeds", "limits"),
    [
        ("B", 64.0, (1, 2, 3), {"rms": 30.0, "p99": 70.0, "max": 100.0}),
        ("A", 16.0, (1,), {"rms": 1.8, "p99": 5.0, "max": 12.0}),
        ("L40", 64.0, (2,), {"rms": 3.0, "p99": 8.0, "max": 20.0}),
    ],
)
def test_a_pair_is_within_its_limits_and_its_bound(
    name: str, rate: float, seeds: tuple[int, ...], limits: dict[str, float]
) -> None:
    found = []
    for seed in seeds:
        world = pair(name, rate, seed)
        found.append(figures(tracks(world, drive(SyncStage(), world.messages(45.0))), 20.0))
    reported = {k: [round(f[k], 3) for f in found] for k in ("rms", "p99", "max", "covered", "bound_per_rms")}
    print(f"law {name} {rate:g}/s seeds {seeds}: {reported}")
    for figure, limit in limits.items():
        assert np.median(reported[figure]) <= limit
    assert max(reported["max"]) <= 2.0 * limits["max"]
    assert np.mean(reported["covered"]) >= 0.999
    # a bound so soon after the start still holds what is not known of the clocks' wander
    assert np.median(reported["bound_per_rms"]) <= 8.0


def test_over_three_busy_hops_the_base_delay_is_not_pulled_above_the_floor() -> None:
    """The three of six seeds in which taking such queueing for exponential did most harm: rms 376, 426 and 673 ns."""
    found = [run(BY_NAME["pair-L90-64"], seed) for seed in (1, 5, 6)]
    reported = {k: [round(f[k], 3) for f in found] for k in ("rms", "p99", "covered", "bound")}
    print(f"law L90 64/s seeds 1, 5, 6: {reported}")
    assert np.median(reported["rms"]) <= 250.0
    assert max(reported["rms"]) <= 600.0
    assert np.median(reported["bound"]) <= 1_400.0
    assert min(reported["covered"]) >= 0.999


def test_a_clock_a_millisecond_off_is_known_to_a_microsecond_in_seconds() -> None:
    found = run(BY_NAME["cold-start"], 1)
    print(f"cold start, seed 1: {found}")
    assert found["microsecond_s"] <= 5.0
    assert found["steady_ratio"] <= 1.5
    assert found["covered"] >= 0.999


def test_a_liar_in_a_mesh_is_flagged_and_misleads_nobody() -> None:
    """14 clocks of degree 8, law B, 64/s; one lies by ±10 µs, each neighbour another sign."""
    lied_to = liars(14, 8, 0.08)(1)
    stage_rows = {}
    for what, world in (("clean", plain_mesh(14, 8)(1)), ("lied to", lied_to)):
        stage_rows[what] = run_tracks(world, drive(SyncStage(), world.messages(19.0)))
    liar = lied_to.troubled
    good = set(lied_to.clocks) - liar - {lied_to.reference}
    clean, found = (figures(stage_rows[what].causal, 12.0, names=good) for what in ("clean", "lied to"))
    smoothed = figures(stage_rows["clean"].smoothed, 12.0)
    faulty = {n: t.at_s[t.status == "faulty"] for n, t in stage_rows["lied to"].causal.items()}
    print(f"seed 1, liar {sorted(liar)}: p99 {clean['p99']:.1f} clean, {found['p99']:.1f} lied to; {clean}")
    print(f"smoothed {smoothed}; faulty from {[(n, at.min()) for n, at in faulty.items() if at.size]}")
    assert clean["p99"] <= 60.0
    assert clean["covered"] >= 0.999 and smoothed["covered"] >= 0.999
    assert smoothed["rms"] < clean["rms"]
    assert found["p99"] <= 1.2 * clean["p99"]
    assert {n for n, at in faulty.items() if at.size} == liar
    assert all(faulty[n].min() <= 10.0 for n in liar)


def test_a_step_is_published_and_disturbs_no_other_clock() -> None:
    earlier = replace(
        BY_NAME["step"],
        make=worlds.stepped(18, 250e3),
        metric=metrics.clock_step(18),
        seconds=34,
        stretch_s=(33, np.inf),
    )
    found = run(earlier, 1)
    print(f"step of 250 µs after 18 s, seed 1: {found}")
    assert found["told_s"] <= 2.0
    assert found["inside_s"] <= 15.0
    # of one seed: eight give 0.94 to 1.49, median 1.17; the score card holds the median to its limit
    assert found["others_ratio"] <= 1.5


def test_a_standing_queue_is_booked_as_delay() -> None:
    earlier = replace(
        BY_NAME["queue"], make=worlds.queue(25, 55), metric=metrics.queueing(25, 55), seconds=62, stretch_s=(25, 60)
    )
    found = run(earlier, 1)
    print(f"30 s standing queue, seed 1: {found}")
    assert found["p99"] <= 200.0
    assert found["least_shown"] >= 0.99
    assert found["phantom"] <= 0.01
    assert found["covered"] >= 0.999


def test_a_standing_queue_is_taken_for_no_drift() -> None:
    """With this seed a drift of 30 ppb/s was supposed 16 s after the queue began: errors of 5 µs, 94.9 % covered."""
    found = run(BY_NAME["queue"], 2)
    print(f"30 s standing queue, seed 2: {found}")
    assert found["p99"] <= 200.0
    assert found["covered"] >= 0.999


def test_a_clock_whose_phase_wanders_is_followed_under_a_long_queue() -> None:
    found = run(replace(BY_NAME["lab-clock"], make=worlds.lab_clock(25, 55), seconds=65), 1)
    print(f"200 ns/√s under 40 ms, seed 1: {found}")
    assert found["p50"] <= 500.0
    assert found["max"] <= 5_000.0


def test_the_bound_of_a_steady_mesh_is_not_wide_by_chance() -> None:
    """24 clocks, seed 1; it was 10.3 times the rms while the worst of five ratios widened it, however few its
    stretches, and while it held what the mesh had not known ten seconds before.
    """
    world = plain_mesh(24, 8)(1)
    found = figures(tracks(world, drive(SyncStage(), world.messages(35.0))), 20.0)
    print(f"mesh of 24, law B, 64/s: {found}")
    assert found["bound_per_rms"] <= 4.8
    assert found["covered"] >= 0.998
