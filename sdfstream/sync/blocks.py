"""One tick's exchanges, session by session: numbers, minima and sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import group
from sdfstream.records.units import Float64s, Int64s


class Blocks(NamedTuple):
    """For each session heard in a tick and each direction (lane 0 forward, 1 reverse)."""

    session: Int64s
    n: Float64s
    """(2, sessions) delays."""
    minimum: Float64s
    """(2, sessions) ns; +inf where there is none."""
    sums: Float64s
    """(3, 2, sessions): sums of e, e² and e³, e = delay − the session's floor."""
    at: Float64s
    """(sessions,) mean internal time of the exchanges, ns."""
    rtt: Float64s
    """(sessions,) smallest sum of both delays of one exchange, ns; +inf where there is none. Free of clock error."""


def blocks(session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, floor: Float64s) -> Blocks:
    """Reduce rows to blocks; `floor` is by session number. NaN delays count as absent."""
    g = group(session)
    d = floor[g.key].repeat(g.size)
    lanes = [_lane(column[g.order], d, g.start) for column in (fwd, rev)]
    rtt = (fwd + rev)[g.order]
    rtt = np.minimum.reduceat(np.where(np.isnan(rtt), np.inf, rtt), g.start)
    n, minimum, sums = (np.stack(parts) for parts in zip(*lanes, strict=True))
    mean_at = np.add.reduceat(at[g.order], g.start) / g.size
    return Blocks(g.key, n, minimum, sums.swapaxes(0, 1), mean_at, rtt)


def _lane(delay: Float64s, floor: Float64s, start: Int64s) -> tuple[Any, Any, Any]:
    absent = np.isnan(delay)
    e = delay - floor
    low = delay
    if absent.any():
        low = np.where(absent, np.inf, delay)
        e = np.where(absent, 0.0, e)
        n = np.add.reduceat((~absent).astype(np.float64), start)
    else:
        n = np.diff(start, append=delay.size).astype(np.float64)
    square = e * e
    sums: npt.NDArray[Any] = np.stack([np.add.reduceat(v, start) for v in (e, square, square * e)])
    return n, np.minimum.reduceat(low, start), sums
