"""Least squares over values that cannot be negative."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_MOST_ROUNDS: Final = 200
_PATIENCE: Final = 3
"""Exchanges of whole sets that may fail to shrink what is infeasible, before one value at a time is exchanged."""


def nonnegative_least_squares(gram: Floats, moment: Floats) -> Floats:
    r"""The `x` ≥ 0 that minimises :math:`\tfrac{1}{2} x^T G x - b^T x`.

    Block principal pivoting: a set of free values is solved for, all others are 0; what is infeasible (a free value
    below 0, a slope of a fixed one below 0) changes sides, all at once while that helps, else the last one alone,
    which ends for certain. A few solutions of the free set are enough in practice.

    Parameters
    ----------
    gram : (n, n) float64
        G, symmetric and positive definite: AᵀWA and a little on its diagonal.
    moment : (n,) float64
        b: AᵀWy.

    Returns
    -------
    x : (n,) float64

    References
    ----------
    .. [1] J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM
       Journal on Scientific Computing 33, 2011, section 4.

    Examples
    --------
    >>> nonnegative_least_squares(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([4.0, -1.0]))
    array([2., 0.])
    """
    n = moment.size
    tolerance = 1e-9 * float(np.abs(moment).max(initial=0.0))
    free = np.zeros(n, np.bool_)
    x, slope = np.zeros(n), -moment
    fewest, patience = n + 1, _PATIENCE
    for _ in range(_MOST_ROUNDS):
        infeasible = np.where(free, x < 0.0, slope < -tolerance)
        count = int(infeasible.sum())
        if not count:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        elif patience:
            patience -= 1
        else:
            infeasible[: np.flatnonzero(infeasible)[-1]] = False
        free ^= infeasible
        x = np.zeros(n)
        x[free] = np.linalg.solve(gram[np.ix_(free, free)], moment[free])
        slope = np.where(free, 0.0, gram @ x - moment)
    return np.maximum(x, 0.0)
