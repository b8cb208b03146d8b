"""A plain model of the per-window method, to compare ours with: max margin per edge, least squares over a mesh.

Written from the published descriptions (Pinkovich and Shimkin 2011; Geng et al., NSDI 2018), not from existing code,
and used for nothing but the score card. One line per edge and window of two seconds: above every lower bound of the
clock difference, below every upper one, as far from both as can be (exact, over the hulls of the bounds; stamps here
are clean enough to need no slack). On a mesh the edges' values of one instant are reconciled by least squares, which
is what removing the surplus round every loop amounts to. The values at the windows' middles are joined by straight
lines: that is the published form, and it is 1 to 3 s late; the value at a window's end is known at once.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.records.units import Float64s
from sdfstream.score.clock.sim import World

WINDOW_S: Final = 2.0


class Estimate(NamedTuple):
    """Another estimator's offsets against the reference, ns, by clock, and the true times they are about."""

    at_s: Float64s
    offset_ns: dict[str, Float64s]


def max_margin(t: Float64s, upper: Float64s, lower: Float64s) -> tuple[float, float]:
    """(intercept, slope) of the line farthest from `upper` above it and `lower` below it; `t` ascending.

    The margin is concave and piecewise linear in the slope, with its corners at the slopes of the hulls' edges, so one
    of those is the best. O(n), but for the hulls' few edges.

    >>> max_margin(np.array([0.0, 1.0, 2.0]), np.array([2.0, 9.0, 4.0]), np.array([0.0, -9.0, 2.0]))
    (1.0, 1.0)
    """
    up, low = _hull(t, upper), _hull(t, -lower)
    slopes = np.concatenate([np.diff(upper[up]) / np.diff(t[up]), -np.diff(-lower[low]) / np.diff(t[low])])
    if not slopes.size:
        return float(upper[up[0]] + lower[low[0]]) / 2.0, 0.0
    above = (upper[up] - slopes[:, None] * t[up]).min(axis=1)
    below = (lower[low] - slopes[:, None] * t[low]).max(axis=1)
    best = int(np.argmax(above - below))
    return float(above[best] + below[best]) / 2.0, float(slopes[best])


def _hull(t: Float64s, y: Float64s) -> npt.NDArray[np.int64]:
    """Which points are the corners of the lower convex hull; `t` ascending, of equal ones the lowest counts."""
    hull: list[int] = []
    times, values = t.tolist(), y.tolist()
    for i, (ti, yi) in enumerate(zip(times, values, strict=True)):
        if hull and times[hull[-1]] == ti:
            if values[hull[-1]] <= yi:
                continue
            hull.pop()
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (values[b] - values[a]) * (ti - times[a]) < (yi - values[a]) * (times[b] - times[a]):
                break
            hull.pop()
        hull.append(i)
    return np.array(hull, dtype=np.int64)


def bounds(world: World, session: int) -> tuple[Float64s, Float64s, Float64s]:
    """(true time of sending in s, upper bounds, lower bounds) of a session's clock difference, in order of time.

    The model gets true time for its abscissa, which a real one has to do without.
    """
    x = world.exchanges
    mine = np.flatnonzero((x["session"] == session) & ~x["lost"])
    mine = mine[np.argsort(x["sent"][mine], kind="stable")]
    upper = (x["t2"][mine] - x["t1"][mine]).astype(np.float64)
    lower = (x["t3"][mine] - x["t4"][mine]).astype(np.float64)
    return x["sent"][mine] / 1e9, upper, lower


def per_window(world: World, seconds: float, window_s: float = WINDOW_S) -> tuple[Estimate, Estimate]:
    """(joined at the middles, at the ends) of every window, all clocks of the world."""
    count = int(seconds / window_s)
    middles, ends = np.full((2, len(world.sessions), count), np.nan)
    for number in range(len(world.sessions)):
        t, upper, lower = bounds(world, number)
        cuts = np.searchsorted(t, np.arange(count + 1) * window_s)
        for w in range(count):
            window = slice(cuts[w], cuts[w + 1])
            if cuts[w + 1] > cuts[w]:
                start_s = w * window_s
                at, slope = max_margin(t[window] - start_s, upper[window], lower[window])
                middles[number, w], ends[number, w] = at + slope * window_s / 2, at + slope * window_s
    begun_s = window_s * np.arange(count, dtype=np.float64)
    return (
        _joined(Estimate(begun_s + window_s / 2, least_squares(world, middles))),
        Estimate(begun_s + window_s, least_squares(world, ends)),
    )


def least_squares(world: World, differences: Float64s) -> dict[str, Float64s]:
    """(windows,) offsets of every clock but the reference from (sessions, windows) differences; NaN: none.

    Plain and unweighted; a clock that no edge binds to the reference in a window gets NaN there.
    """
    names = [n for n in sorted(world.clocks) if n != world.reference]
    number = {name: i for i, name in enumerate(names)}
    incidence = np.zeros((len(world.sessions), len(names)))
    for row, s in enumerate(world.sessions):
        if s.dst in number:
            incidence[row, number[s.dst]] += 1.0
        if s.src in number:
            incidence[row, number[s.src]] -= 1.0
    found = np.full((len(names), differences.shape[1]), np.nan)
    for w in range(differences.shape[1]):
        known = ~np.isnan(differences[:, w])
        if known.any() and np.linalg.matrix_rank(incidence[known]) == len(names):
            found[:, w] = np.linalg.lstsq(incidence[known], differences[known, w], rcond=None)[0]
    return {name: found[i] for name, i in number.items()}


def _joined(e: Estimate, every_s: float = 0.1) -> Estimate:
    at_s = np.arange(e.at_s[0], e.at_s[-1], every_s)
    return Estimate(at_s, {name: np.interp(at_s, e.at_s, values) for name, values in e.offset_ns.items()})
