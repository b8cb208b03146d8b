"""The search for faulty elements, where some fail far fewer trials than others that share their paths."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric.blame import TrialCounts, blame

ELEMENTS, PATHS, PROBES = 12, 120, 600


def fabric(shares: dict[int, float], seed: int) -> TrialCounts:
    """Paths over four elements each that fail these shares of what crosses them, and 5e-4 of their own."""
    rng = np.random.default_rng(seed)
    crossed = np.array([rng.choice(ELEMENTS, 4, replace=False) for _ in range(PATHS)])
    share = np.array([shares.get(element, 0.0) for element in range(ELEMENTS)])
    fails = 1.0 - (1.0 - 5e-4) * np.prod(1.0 - share[crossed], axis=1)
    failed = rng.binomial(PROBES, fails).astype(np.float64)
    row, each = np.repeat(np.arange(PATHS), 4), np.ones(PATHS * 4)
    return TrialCounts(failed, np.full(PATHS, float(PROBES)), row, crossed.ravel(), each, np.ones(PATHS))


@pytest.mark.parametrize("seed", range(10))
def test_a_faint_element_is_found_although_all_its_paths_have_worse_ones(seed: int) -> None:
    """Of what its paths fail together the larger part is the others': that share is far too large for it."""
    shares = {0: 0.06, 1: 0.05, 2: 0.04, 3: 0.008}
    found = blame(fabric(shares, seed), np.full(ELEMENTS, np.log(1e-4)), noise=8e-4)
    assert {c.element for c in found} == set(shares)
    faint = next(c for c in found if c.element == 3)
    assert 0.6 < faint.share / 0.008 < 1.6
