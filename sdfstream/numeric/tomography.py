r"""Queueing delay of each link from the excess delays of the paths that cross it.

The excess of a path is the sum of the queueing delays of its links, and none of those is negative. So a path without
excess clears all its links at once, and what paths with excess have to share out is left among the few links that no
such path crosses:

.. math::

    y_p = \sum_{l \in p} x_l + e_p, \quad x_l \ge 0, \quad e_p \sim (0, \sigma_p^2)

1. A path is *high* above `HIGH` of its standard errors. A link is *cleared* by quiet paths: by one, or by a tenth of
   those that cross it where they are many (a route that has just moved must not clear a link that it left).
2. Links that a high path crosses and that are not cleared are *candidates*: non-negative least squares over the paths
   that cross any (`numeric.nnls`), weights cut where a path disagrees (Huber), a weak prior around 0.
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
_HUBER: Final = 2.5
"""Standard errors from which a path's say is cut."""
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


def link_delays(path: Ints, link: Ints, excess_ns: Floats, err_ns: Floats, links: int) -> LinkDelays:
    """Queueing delays of `links` links.

    Parameters
    ----------
    path, link : (crossings,) int64
        A path and a link that it crosses, each pair once; all links of a path.
    excess_ns : (paths,) float64
        Delay over what is normal for the path; below 0 by noise.
    err_ns : (paths,) float64, > 0
        Its standard error.

    Examples
    --------
    Two paths share link 1; the first is slow, the second is not:

    >>> y, e = np.array([50e3, 1e3]), np.array([1e3, 1e3])
    >>> found = link_delays(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]), y, e, 3)
    >>> (found.delay_ns / 1e3).round(), found.paths
    (array([50.,  0.,  0.]), array([1, 2, 1]))
    """
    paths = np.bincount(link, minlength=links).astype(np.int64)
    high = excess_ns > HIGH * err_ns
    quiet = np.bincount(link, ~high[path], links)
    precision = np.bincount(link, (~high / err_ns**2)[path], links)
    cleared = (quiet > 0) & (quiet >= _CLEARS * paths)
    delay = np.where(cleared, 0.0, np.nan)
    err = np.where(cleared, 1.0 / np.sqrt(np.maximum(precision, 1e-30)), np.nan)
    candidate = (paths > 0) & ~cleared
    if 0 < int(candidate.sum()) <= _MOST:
        delay[candidate], err[candidate] = _shared_out(path, link, excess_ns, err_ns, candidate)
    return LinkDelays(delay, err, paths)


def _shared_out(path: Ints, link: Ints, excess_ns: Floats, err_ns: Floats, candidate: Bools) -> tuple[Floats, Floats]:
    """(candidates,) delays and standard errors."""
    use = candidate[link]
    number = np.cumsum(candidate) - 1
    at, row = number[link[use]], path[use]
    n = int(candidate.sum())
    least = np.full(n, np.inf)
    np.minimum.at(least, at, (excess_ns + HIGH * err_ns)[row])
    prior = 1.0 / np.maximum(least, 1e3) ** 2
    first, second, pair_row = _pairs(row, at)
    weight = 1.0 / err_ns**2
    there = np.unique(row)
    x = np.zeros(n)
    gram = np.empty((n, n))
    for turn in range(_ROUNDS):
        gram = np.bincount(first * n + second, weight[pair_row], n * n).reshape(n, n).astype(np.float64)
        gram[np.arange(n), np.arange(n)] += prior
        moment = np.bincount(at, (weight * excess_ns)[row], n).astype(np.float64)
        x = nonnegative_least_squares(gram, moment)
        if turn < _ROUNDS - 1:
            off = np.abs(excess_ns - np.bincount(row, x[at], excess_ns.size))[there] / err_ns[there]
            weight[there] = np.minimum(1.0, _HUBER / np.maximum(off, 1e-9)) / err_ns[there] ** 2
    return x, np.sqrt(np.maximum(np.diag(np.linalg.inv(gram)), 0.0))


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
