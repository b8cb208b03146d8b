"""Shares of causes that overlap, and the share that healthy paths have in common."""

import numpy as np
import pytest

from sdfstream.numeric.mixture import fit_shares, healthy_share


@pytest.mark.parametrize("seed", range(10))
def test_overlapping_causes_are_told_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    exposure = (rng.random((6, 400)) < 0.15).astype(float)
    true, trials = rng.uniform(0.005, 0.05, 6), np.full(400, 600.0)
    events = rng.poisson(trials * (5e-4 + true @ exposure)).astype(float)
    share, reached = fit_shares(events, trials, exposure, 5e-4)
    assert np.abs(share / true - 1).max() < 0.25
    assert reached > fit_shares(events, trials, exposure[:5], 5e-4)[1] + 10


def test_a_cause_that_nothing_meets_has_no_share_and_without_causes_there_is_a_likelihood() -> None:
    events, trials = np.array([1.0, 2.0]), np.array([100.0, 100.0])
    share, _ = fit_shares(events, trials, np.array([[0.0, 0.0], [1.0, 1.0]]), 1e-3)
    assert share[0] == 0.0 and share[1] == pytest.approx(0.014, abs=0.001)
    assert np.isfinite(fit_shares(events, trials, np.empty((0, 2)), 1e-3)[1])


@pytest.mark.parametrize("sick", [0.0, 0.2, 0.45])
@pytest.mark.parametrize("seed", range(5))
def test_the_healthy_share_is_found_among_sick_paths(sick: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.uniform(3e-4, 8e-4, 640)
    rates[: int(640 * sick)] += rng.uniform(0.004, 0.05, int(640 * sick))
    events = rng.poisson(600 * rates).astype(float)
    assert 3e-4 < healthy_share(events, np.full(640, 600.0)) < 8e-4


def test_too_few_counts_give_no_share_below_what_was_seen() -> None:
    rng = np.random.default_rng(1)
    few = healthy_share(rng.poisson(20 * np.full(640, 3e-3)).astype(float), np.full(640, 20.0))
    assert few > 1e-3
