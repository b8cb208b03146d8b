"""The exact max margin against a search over slopes, and least squares against a known world."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdfstream.score.clock import margin as clock_margin
from sdfstream.score.clock import report
from sdfstream.score.clock.margin import least_squares, max_margin, per_window
from sdfstream.score.clock.sim import mesh, pair


@pytest.mark.parametrize("module", [clock_margin, report])
def test_examples(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0 and result.failed == 0


def margin(t: np.ndarray, upper: np.ndarray, lower: np.ndarray, slope: float) -> float:
    return float((upper - slope * t).min() - (lower - slope * t).max()) / 2


@settings(max_examples=150, deadline=None)
@given(st.integers(1, 40), st.integers(0, 2**32 - 1), st.booleans())
def test_no_other_slope_has_a_larger_margin(n: int, seed: int, repeated: bool) -> None:
    g = np.random.Generator(np.random.PCG64(seed))
    t = np.sort(g.integers(0, 5, n).astype(float) if repeated else g.uniform(0, 2, n))
    line = g.normal(0, 1e3) + g.normal(0, 100) * t
    upper, lower = line + g.exponential(10.0, n), line - g.exponential(10.0, n)
    at, slope = max_margin(t, upper, lower)
    best = margin(t, upper, lower, slope)
    if t[0] < t[-1]:
        for other in [*(slope + g.normal(0, 30, 60)), *(slope + g.normal(0, 0.1, 60))]:
            assert margin(t, upper, lower, float(other)) <= best + 1e-9
    middle = ((upper - slope * t).min() + (lower - slope * t).max()) / 2
    assert at == pytest.approx(middle, abs=1e-6)


def test_a_window_of_clean_probes_gives_the_clock() -> None:
    world = pair("A", 64, 1)
    world.messages(20.0)
    joined, ends = per_window(world, 20.0)
    for e in (joined, ends):
        assert np.abs(e.offset_ns["b"] - world.offset("b", e.at_s * 1e9)).max() < 15.0
    assert joined.at_s[0] == 1.0 and ends.at_s[-1] == 20.0


def test_least_squares_finds_a_mesh_and_says_where_it_cannot() -> None:
    world = mesh(12, 4, "A", 16, 1)
    truth = {name: 100.0 * i for i, name in enumerate(sorted(world.clocks))}
    exact = np.array([[truth[s.dst] - truth[s.src]] for s in world.sessions])
    found = least_squares(world, np.hstack([exact, np.full_like(exact, np.nan)]))
    assert set(found) == set(world.clocks) - {"h00"}
    assert all(found[name][0] == pytest.approx(truth[name]) for name in found)
    assert all(np.isnan(found[name][1]) for name in found)
