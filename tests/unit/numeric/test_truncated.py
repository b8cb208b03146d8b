"""A Gaussian truncated by a soft bound: its moments against numerical integration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdfstream.numeric.truncated import scaled_erfc, truncate

_ERFC = np.vectorize(math.erfc)


def one(value: float) -> np.ndarray:
    return np.array([value])


def truncated(mean: float, variance: float, bound: float, soft: float) -> tuple[float, float]:
    shift, drop = truncate(one(mean), one(variance), one(bound), one(soft))
    return float(shift[0]), float(drop[0])


def integrated(mean: float, variance: float, bound: float, soft: float) -> tuple[float, float]:
    """Mean and variance of N(y; m, P) · Φ((w − y)/σ), by a sum over a fine grid around where its mass is."""
    sigma = math.sqrt(variance)
    low, high = mean - 16.0 * sigma, mean + 8.0 * sigma
    if not soft:
        high = min(high, bound)
    width = (high - low) / 400_000
    y = low + (np.arange(400_000) + 0.5) * width
    log = -0.5 * (y - mean) ** 2 / variance
    weight = np.exp(log - log.max())
    if soft:
        weight = weight * 0.5 * _ERFC((y - bound) / math.sqrt(2.0 * soft))
    total = weight.sum()
    centre = float((weight * y).sum() / total)
    return centre, float((weight * (y - centre) ** 2).sum() / total)


@pytest.mark.parametrize("beta", [-8.0, -4.0, -1.0, 0.0, 0.5, 2.0, 5.0])
@pytest.mark.parametrize("softness", [0.0, 0.01, 1.0, 25.0])
def test_the_moments_are_those_of_the_integral(beta: float, softness: float) -> None:
    mean, variance = 130.0, 400.0
    soft = softness * variance
    bound = mean + beta * math.sqrt(variance + soft)
    shift, drop = truncated(mean, variance, bound, soft)
    centre, left = integrated(mean, variance, bound, soft)
    assert shift == pytest.approx(centre - mean, rel=1e-4, abs=1e-5)
    assert variance - drop == pytest.approx(left, rel=2e-3)


def test_a_bound_far_above_says_nothing() -> None:
    shift, drop = truncated(0.0, 1.0, 60.0, 0.0)
    assert shift == pytest.approx(0.0, abs=1e-300)
    assert drop == pytest.approx(0.0, abs=1e-300)


def test_what_is_left_below_a_hard_bound_far_below_is_an_exponential_tail() -> None:
    """Ten deviations below: mean a tenth of a deviation under the bound, to 1/β²."""
    shift, drop = truncated(0.0, 1.0, -10.0, 0.0)
    assert shift == pytest.approx(-10.1, abs=0.01)
    assert 1.0 - drop == pytest.approx(0.01, rel=0.06)


def test_a_bound_softer_than_all_that_is_known_hardly_pushes() -> None:
    hard, soft = truncated(0.0, 1.0, 0.0, 0.0), truncated(0.0, 1.0, 0.0, 1e6)
    assert soft[0] > 2e-3 * hard[0]
    assert soft[1] < 2e-6 * hard[1] + 1e-6


@pytest.mark.parametrize("z", [-5.0, -1.0, 0.0, 0.3, 2.0, 10.0, 25.0])
def test_the_scaled_error_function_is_as_exact_as_it_says(z: float) -> None:
    wanted = math.exp(z * z) * math.erfc(z)
    assert float(scaled_erfc(one(z))[0]) == pytest.approx(wanted, rel=1.3e-7)


@given(
    mean=st.floats(-1e6, 1e6),
    sigma=st.floats(1e-2, 1e9),
    bound=st.floats(-1e6, 1e6),
    soft=st.floats(0.0, 1e12),
)
def test_a_bound_only_ever_pushes_down_and_only_ever_teaches(
    mean: float, sigma: float, bound: float, soft: float
) -> None:
    variance = sigma * sigma
    shift, drop = truncated(mean, variance, bound, soft)
    assert math.isfinite(shift) and shift <= 0.0
    assert 0.0 <= drop < variance
    # never beyond a hard bound's far side
    if not soft and bound < mean:
        assert mean + shift <= bound + 1e-6 * (abs(bound) + sigma + mean - bound)
