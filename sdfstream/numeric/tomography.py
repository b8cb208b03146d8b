r"""Queueing delay of each link from the excess delays of the paths that cross it.

The excess of a path is the sum of the queueing delays of its links, and none of those is negative. So a path without
excess clears all its links at once, and what paths with excess have to share out is left among the few links that no
such path crosses:

.. math::

    y_p = \sum_{l \in p} x_l + e_p, \quad x_l \ge 0, \quad e_p \sim (0, \sigma_p^2)

1. A path is *high* above `HIGH` of its standard errors. A link is *cleared* by quiet paths: by one, or by a tenth of
   those that cross it where they are many (a route that has just moved must not clear a link that it left).
2. Links that a high path crosses and that are not cleared are *candidates*: non-negative least squares over the paths
   that cross any (`numeric.nnls`), weights cut where a path disagrees (Huber), a weak prior around 0. A queue is no
   constant: each probe's wait scatters by a share of the queue, which all paths together show. The weights go by what
   is fitted, not by a path's own scatter: the paths that met less of the queue would count for more.
3. The error is the posterior's standard deviation with the links' own bounds given up, so two links that only the same
   paths cross have an error as large as their delay, whatever was made of it.

A cleared link has the delay 0 and the error that its quiet paths leave: at most their mean's.

References
----------
.. [1] Y. Geng et al., "SIMON: a simple and scalable method for sensing, inference and measurement in data center
   networks", NSDI 2019: queues from the edge by LASSO over probes' excess delays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.nnls import nonnegative_least_squares

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

HIGH: Final = 3.0
"""Standard errors above which a path's excess is taken for one: a quiet path is above once in 700 times."""
_CLEARS: Final = 0.1
"""Share of the paths over a link that must be quiet to clear it."""
_SCATTER_LEAST, _SCATTER_MOST = 0.05, 1.2
"""Bounds of a wait's standard deviation as a share of its mean: 1 in an M/M/1 queue."""
_MEDIAN: Final = 0.455
"""Of the square of a standard normal variable."""
_HUBER: Final = 2.5
"""Standard errors from which a path's say is cut."""
_LEAST_PRIOR: Final = 1e-12
"""Of what the paths say of a link: less is lost in rounding, and links that only the same paths cross have no solution.
It limits the error of such links to a million times that of the paths."""
_LONGEST_NS: Final = 1e12
"""No queue is longer, whatever a stamp says."""
_ROUNDS: Final = 4
_MOST: Final = 1_500
"""Candidates that are solved for at once; more are left open. Beyond, the solution takes longer than a second."""


@dataclass(frozen=True, slots=True)
class LinkDelays:
    """(links,) arrays."""

    delay_ns: Floats
    """Queueing delay; NaN: no path crosses the link, or there were too many candidates."""
    err_ns: Floats
    """Standard error; NaN likewise."""
    paths: Ints
    """Paths that cross it."""


@dataclass(frozen=True, slots=True)
class PathDelays:
    """What was measured of paths; every array is (paths,)."""

    excess_ns: Floats
    """Mean delay over what is normal for the path; below 0 by noise."""
    err_ns: Floats
    """Its standard error while no queue stands, > 0."""
    n: Ints
    """Delays behind it."""


def link_delays(path: Ints, link: Ints, measured: PathDelays, links: int) -> LinkDelays:
    """Queueing delays of `links` links.

    Parameters
    ----------
    path, link : (crossings,) int64
        A path and a link that it crosses, each pair once; all links of a path.
    measured : PathDelays

    Examples
    --------
    Two paths share link 1; the first is slow, the second is not:

    >>> measured = PathDelays(np.array([50e3, 1e3]), np.array([1e3, 1e3]), np.array([10, 10]))
    >>> found = link_delays(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), measured, 3)
    >>> (found.delay_ns / 1e3).round(), found.paths
    (array([50.,  0.,  0.]), array([1, 2, 1]))
    """
    paths = np.bincount(link, minlength=links).astype(np.int64)
    err_ns = measured.err_ns
    high = measured.excess_ns > HIGH * err_ns
    quiet = np.bincount(link, ~high[path], links)
    precision = np.bincount(link, (~high / err_ns**2)[path], links)
    cleared = (quiet > 0) & (quiet >= _CLEARS * paths)
    delay = np.where(cleared, 0.0, np.nan)
    err = np.where(cleared, 1.0 / np.sqrt(np.maximum(precision, 1e-30)), np.nan)
    candidate = (paths > 0) & ~cleared
    if 0 < int(candidate.sum()) <= _MOST:
        delay[candidate], err[candidate] = _shared_out(path, link, measured, candidate)
    return LinkDelays(delay, err, paths)


def _shared_out(path: Ints, link: Ints, measured: PathDelays, candidate: Bools) -> tuple[Floats, Floats]:
    """(candidates,) delays and standard errors."""
    use = candidate[link]
    number = np.cumsum(candidate) - 1
    there, row = np.unique(path[use], return_inverse=True)
    at, n = number[link[use]], int(candidate.sum())
    y, err = np.clip(measured.excess_ns[there], -_LONGEST_NS, _LONGEST_NS), measured.err_ns[there]
    windows = np.maximum(measured.n[there], 1)
    least = np.full(n, np.inf)
    np.minimum.at(least, at, np.abs(y[row]) + HIGH * err[row])
    prior = 1.0 / np.maximum(least, 1e3) ** 2
    first, second, pair_row = _pairs(row, at)
    x, gram, weight, variance = np.zeros(n), np.eye(n), 1.0 / err**2, err**2
    for turn in range(_ROUNDS):
        gram = np.bincount(first * n + second, weight[pair_row], n * n).reshape(n, n).astype(np.float64)
        gram[np.arange(n), np.arange(n)] += np.maximum(prior, _LEAST_PRIOR * gram.diagonal())
        x = nonnegative_least_squares(gram, np.bincount(at, (weight * y)[row], n).astype(np.float64))
        if turn < _ROUNDS - 1:
            fit = np.bincount(row, x[at], there.size).astype(np.float64)
            variance = err**2 + _scatter(y - fit, fit, err, windows) ** 2 * fit**2 / windows
            off = np.abs(y - fit) / np.sqrt(variance)
            weight = np.minimum(1.0, _HUBER / np.maximum(off, 1e-9)) / variance
    return x, np.sqrt(np.maximum(np.diag(np.linalg.inv(gram)), 0.0))


def _scatter(rest: Floats, fit: Floats, err: Floats, windows: Ints) -> float:
    """Standard deviation of a wait as a share of its mean, by what is left of the paths with a queue."""
    queued = fit > HIGH * err
    if not queued.any():
        return _SCATTER_LEAST
    typical = float(np.median(((rest**2 - err**2) * windows / np.maximum(fit, 1.0) ** 2)[queued])) / _MEDIAN
    return float(np.clip(np.sqrt(max(typical, 0.0)), _SCATTER_LEAST, _SCATTER_MOST))


def _pairs(row: Ints, at: Ints) -> tuple[Ints, Ints, Ints]:
    """All ordered pairs of candidates that one path crosses, with the path: (first, second, path)."""
    order = np.argsort(row, kind="stable")
    row, at = row[order], at[order]
    start = np.flatnonzero(np.r_[True, np.diff(row) != 0])
    size = np.diff(np.r_[start, row.size])
    many = size.repeat(size)
    first = np.repeat(np.arange(row.size), many)
    begun = np.cumsum(many) - many
    second = np.repeat(start.repeat(size), many) + np.arange(first.size) - begun.repeat(many)
    return at[first], at[second], row[first]
