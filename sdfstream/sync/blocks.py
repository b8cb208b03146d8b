"""One tick's exchanges, session by session: numbers, minima and sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

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
    """(2, sessions): sums of delay − the session's floor."""
    at: Float64s
    """(sessions,) mean internal time of the exchanges, ns."""


def blocks(session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, floor: Float64s) -> Blocks:
    """Reduce rows to blocks; `floor` is by session number. NaN delays count as absent."""
    g = group(session)
    d = floor[g.key].repeat(g.size)
    lanes = [_lane(column[g.order], d, g.start) for column in (fwd, rev)]
    n, minimum, sums = (np.stack(parts) for parts in zip(*lanes, strict=True))
    mean_at = np.add.reduceat(at[g.order], g.start) / g.size
    return Blocks(g.key, n, minimum, sums, mean_at)


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
    return n, np.minimum.reduceat(low, start), np.add.reduceat(e, start)
