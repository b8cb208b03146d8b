"""What a clock's variance is multiplied by in its bound: near one by chance alone, wide at once where it strays."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.records.units import Float64s
from sdfstream.sync.straying import bound_factor

LENGTHS_S = (1.0, 4.0, 8.0, 16.0, 32.0)
MEMORY_S = 60.0
LEAST = 0.8


def factors(rng: np.random.Generator, clocks: int, *, pairs: bool, truth: object = 1.0) -> Float64s:
    """Factors after a long time of predictions that stray by `truth` (by horizon) times what is expected, squared."""
    sums = np.zeros((3, len(LENGTHS_S), clocks))
    true = np.broadcast_to(np.asarray(truth, dtype=float), len(LENGTHS_S))
    for h, length_s in enumerate(LENGTHS_S):
        fade = np.exp(-length_s / MEMORY_S)
        for _ in range(round(300.0 / length_s)):
            error = true[h] * rng.standard_normal(clocks) ** 2
            if pairs:  # both clocks share each error
                error = error[: clocks // 2].repeat(2)
            sums[:2, h] = sums[:2, h] * fade + np.stack([error, np.ones(clocks)])
            sums[2, h] = sums[2, h] * fade**2 + 1.0
    label = np.arange(clocks) // 2 * 2 if pairs else np.zeros(clocks, dtype=np.int64)
    return bound_factor(*sums, label, LEAST)


def before(rng: np.random.Generator, clocks: int) -> float:
    """Median of what it was until 2026-11-29: the worst of all ratios to the power 1.5."""
    worst = np.zeros(clocks)
    for length_s in LENGTHS_S:
        weight = np.exp(-length_s / MEMORY_S * np.arange(round(300.0 / length_s)))[:, None]
        worst = np.maximum(worst, (weight * rng.standard_normal((weight.size, clocks)) ** 2).sum(0) / weight.sum())
    return float(np.median(np.maximum(worst, LEAST) ** 1.5))


def test_in_a_steady_mesh_it_is_near_one_whatever_chance_does_to_the_longest_horizons() -> None:
    rng = np.random.default_rng(1)
    found, was = factors(rng, 64, pairs=False), before(rng, 64)
    print(f"64 clocks: median {np.median(found):.2f}, {was:.2f} before; worst {found.max():.2f}")
    assert was > 1.7
    assert np.median(found) < 1.2
    assert np.quantile(found, 0.9) < 1.5


def test_a_mesh_that_is_steadier_than_its_filters_think_has_less_than_one_and_a_pair_never() -> None:
    rng = np.random.default_rng(2)
    mesh, pairs = factors(rng, 64, pairs=False, truth=0.5), factors(rng, 64, pairs=True, truth=0.3)
    print(f"half of what is expected: mesh {np.median(mesh):.2f}; pairs, a third of it {np.median(pairs):.2f}")
    assert LEAST <= np.median(mesh) < 0.9
    assert pairs.min() >= 1.0


def test_of_a_pair_the_longest_horizon_alone_proves_little() -> None:
    """Ratio 2.5 of two stretches of 32 s, as one pair in ten has by chance."""
    error, expected = np.ones((5, 2)), np.ones((5, 2))
    error[:4], error[4] = 0.6, 2.5
    stretches = np.array([100.0, 25.0, 12.0, 6.0, 2.0])[:, None] * np.ones(2)
    found = bound_factor(error, expected, expected**2 / stretches, np.zeros(2, dtype=np.int64), LEAST)
    assert (found < 1.5).all(), "4.0 before"


@pytest.mark.parametrize("clocks", [2, 8])
def test_a_clock_that_strays_for_one_long_stretch_is_wide_at_once(clocks: int) -> None:
    """Thirty times what is expected, as after a slew's begin; the other clocks of a mesh stay as they are."""
    error = np.full((5, clocks), 0.7)
    error[4, : 2 if clocks == 2 else 1] = 13.0
    expected, stretches = np.ones((5, clocks)), np.array([100.0, 25.0, 12.0, 6.0, 2.4])[:, None] * np.ones(clocks)
    found = bound_factor(error, expected, expected**2 / stretches, np.zeros(clocks, dtype=np.int64), LEAST)
    assert found[0] == pytest.approx(13.0**1.5, rel=0.02)
    if clocks > 2:
        assert (found[1:] < 1.6).all()


@pytest.mark.parametrize(("clocks", "horizon"), [(2, 0), (2, 1), (2, 2), (2, 3), (8, 0), (8, 2), (64, 0)])
def test_what_shorter_horizons_show_counts_as_it_is(clocks: int, horizon: int) -> None:
    """Nobody else can tell of a pair, and the shortest has many stretches; ratio 2, nothing certain."""
    error, expected = np.full((5, clocks), 0.7), np.ones((5, clocks))
    error[horizon] = 2.0
    found = bound_factor(error, expected, expected**2 / 2.0, np.zeros(clocks, dtype=np.int64), LEAST)
    np.testing.assert_allclose(found, 2.0**1.5)


def test_clocks_of_another_component_prove_nothing() -> None:
    error, expected = np.full((5, 40), 0.5), np.ones((5, 40))
    label = np.array([0] * 20 + [20] * 16 + [36] * 4)
    error[:, 20:] = 0.95
    found = bound_factor(error, expected, np.full((5, 40), 0.1), label, 0.1)
    np.testing.assert_allclose(found[:20], 0.5)
    np.testing.assert_allclose(found[20:36], 0.95)
    np.testing.assert_allclose(found[36:], 1.5)
