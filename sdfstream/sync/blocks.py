"""One tick's exchanges, session by session: numbers, minima and sums."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import runs, stable_order
from sdfstream.records.units import Bools, Float64s, Int64s


class Blocks(NamedTuple):
    """For each session heard in a tick and each direction (lane 0 forward, 1 reverse)."""

    session: Int64s
    n: Float64s
    """(2, sessions) delays."""
    minimum: Float64s
    """(2, sessions) ns; +inf where there is none."""
    sums: Float64s
    """(3, 2, sessions): sums of e, e² and e³, e = delay − a level of the session's; e³ only where it was asked for."""
    at: Float64s
    """(sessions,) mean internal time of the exchanges, ns."""
    span: Float64s
    """(sessions,) from the first to the last exchange, ns."""


def blocks(session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, level: Float64s, third: Bools) -> Blocks:
    """Reduce rows to blocks; `level` and `third` are by session number. NaN delays count as absent."""
    if not (session[1:] >= session[:-1]).all():
        order = stable_order(session)
        session, at, fwd, rev = session[order], at[order], fwd[order], rev[order]
    start, size, key = runs(session)
    d = level[key].repeat(size)
    cubes = third[key]
    lanes = [_lane(column, d, start, cubes) for column in (fwd, rev)]
    n, minimum, sums = (np.stack(parts) for parts in zip(*lanes, strict=True))
    span = np.maximum.reduceat(at, start) - np.minimum.reduceat(at, start)
    return Blocks(key, n, minimum, sums.swapaxes(0, 1), np.add.reduceat(at, start) / size, span)


def _lane(delay: Float64s, level: Float64s, start: Int64s, cubes: Bools) -> tuple[Any, Any, Any]:
    absent = np.isnan(delay)
    e = delay - level
    low = delay
    if absent.any():
        low = np.where(absent, np.inf, delay)
        e = np.where(absent, 0.0, e)
        n = np.add.reduceat((~absent).astype(np.float64), start)
    else:
        n = np.diff(start, append=delay.size).astype(np.float64)
    square = e * e
    first, second = np.add.reduceat(e, start), np.add.reduceat(square, start)
    third = np.where(cubes, np.add.reduceat(square * e, start), 0.0) if cubes.any() else np.zeros_like(first)
    sums: npt.NDArray[Any] = np.stack([first, second, third])
    return n, np.minimum.reduceat(low, start), sums
