"""`nonnegative_least_squares` against the conditions that its solution has to meet."""

from __future__ import annotations

import numpy as np
import pytest

from sdfstream.numeric.nnls import nonnegative_least_squares


@pytest.mark.parametrize("seed", range(20))
def test_meets_the_conditions_of_karush_kuhn_and_tucker(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    a = (rng.random((3 * n, n)) < 0.2).astype(float)
    gram = a.T @ a + 1e-3 * np.eye(n)
    moment = a.T @ rng.normal(0.0, 1e4, 3 * n)
    x = nonnegative_least_squares(gram, moment)
    slope = gram @ x - moment
    small = 1e-6 * np.abs(moment).max()
    assert (x >= 0).all()
    assert (slope >= -small).all()
    assert np.abs(slope[x > 0]).max(initial=0.0) <= small


def test_gives_what_plain_least_squares_gives_where_nothing_is_negative() -> None:
    gram = np.array([[4.0, 1.0], [1.0, 3.0]])
    x = nonnegative_least_squares(gram, np.array([9.0, 7.0]))
    np.testing.assert_allclose(x, np.linalg.solve(gram, [9.0, 7.0]))


def test_of_nothing_is_nothing() -> None:
    assert nonnegative_least_squares(np.zeros((0, 0)), np.zeros(0)).size == 0
