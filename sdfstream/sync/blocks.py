"""One tick's exchanges, session by session: numbers, minima, sums, and the moments by which sessions are quiet.

A session is quiet while its delays are not lop-sided and their deviation is small: then the mean of a block
measures better than its smallest delay.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sdfstream.numeric.group import runs, stable_order
from sdfstream.numeric.table import Table
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.config import SyncConfig

FWD, REV = 0, 1
_MEMORY_BLOCKS: Final = 80.0
_CALM_BLOCKS: Final = 24.0
_LAST_RESTART: Final = 64.0


class Blocks(NamedTuple):
    """For each session with exchanges in a tick and each direction (0 forward, 1 reverse)."""

    session: Int64s
    n: Float64s
    """(2, sessions) delays."""
    minimum: Float64s
    """(2, sessions) ns; +inf where there is none."""
    sums: Float64s
    """(3, 2, sessions): sums of e, e² and e³, e = delay − the session's centre; e³ only where `third`."""
    at_ns: Float64s
    """(sessions,) mean internal time of the exchanges, ns."""
    span: Float64s
    """(sessions,) from the first to the last exchange, ns."""


def blocks(session: Int64s, at: Float64s, fwd: Float64s, rev: Float64s, centre_ns: Float64s, third: Bools) -> Blocks:
    """Reduce rows to blocks; `centre_ns` and `third` are by session number. NaN delays count as absent."""
    if not (session[1:] >= session[:-1]).all():
        order = stable_order(session)
        session, at, fwd, rev = session[order], at[order], fwd[order], rev[order]
    start, size, key = runs(session)
    d = centre_ns[key].repeat(size)
    cubes = third[key]
    both = [_direction_sums(column, d, start, cubes) for column in (fwd, rev)]
    n, minimum, sums = (np.stack(pair) for pair in zip(*both, strict=True))
    span = np.maximum.reduceat(at, start) - np.minimum.reduceat(at, start)
    return Blocks(key, n, minimum, sums.swapaxes(0, 1), np.add.reduceat(at, start) / size, span)


def _direction_sums(delay: Float64s, centre_ns: Float64s, start: Int64s, cubes: Bools) -> tuple[Any, Any, Any]:
    absent = np.isnan(delay)
    e = delay - centre_ns
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


def narrow(t: Table, c: SyncConfig) -> Bools:
    """(sessions,) whether a session may be quiet, so that the third moment is worth its cost."""
    variance = (t["moment2_ns2"] - t["moment1_ns"] ** 2).max(axis=0)
    result: Bools = (t["moment_blocks"] < _CALM_BLOCKS) | (variance < (4.0 * c.quiet_ns) ** 2)
    return result


def moments_of(moment_blocks: Float64s) -> Float64s:
    """Blocks since moments began afresh, of the `moment_blocks` that a session had so far.

    They do so at the 1st, 2nd, 4th, … 64th block, so that the wild first ones are forgotten.
    """
    restart = np.floor(np.log2(np.clip(moment_blocks, 1.0, _LAST_RESTART)))
    result: Float64s = moment_blocks - np.exp2(restart) + 1.0
    return result


def learn_moments(t: Table, b: Blocks, c: SyncConfig) -> None:
    """Update the moments of the delays about `centre_ns`, and whether the sessions are quiet."""
    i = b.session
    t["moment_blocks"][i] += 1.0
    since = moments_of(t["moment_blocks"][i])
    gain = np.where(b.n > 0, np.maximum(1.0 / since, 1.0 / _MEMORY_BLOCKS), 0.0)
    count = np.maximum(b.n, 1.0)
    for power, name in enumerate(("moment1_ns", "moment2_ns2", "moment3_ns3")):
        old = t[name].take(i, axis=1)
        fresh = old + gain * (b.sums[power] / count - old)
        for direction in (FWD, REV):  # two writes of one row each cost a fifth of one write of both
            t[name][direction][i] = fresh[direction]
    _move(t, i[since == 1.0])
    _calm(t, i, since, c)


def _move(t: Table, i: Int64s) -> None:
    """Centre moments on the present base delay, when they begin afresh."""
    by = t["base_delay_ns"][i] - t["centre_ns"][i]
    first, second = t["moment1_ns"].take(i, axis=1), t["moment2_ns2"].take(i, axis=1)
    t["moment3_ns3"][:, i] += -3.0 * by * second + 3.0 * by**2 * first - by**3
    t["moment2_ns2"][:, i] += -2.0 * by * first + by**2
    t["moment1_ns"][:, i] -= by
    t["centre_ns"][i] = t["base_delay_ns"][i]


def _calm(t: Table, i: Int64s, since: Float64s, c: SyncConfig) -> None:
    """Quiet: skewness below ½ in both directions (exponential: 2; normal: 0 ± 0.2 for 128 delays), deviation below
    `quiet_ns`; no longer, when skewness passes 1 or the deviation doubles.
    """
    first = t["moment1_ns"].take(i, axis=1)
    variance = np.maximum(t["moment2_ns2"].take(i, axis=1) - first**2, c.jitter_ns**2)
    third = t["moment3_ns3"].take(i, axis=1) - 3.0 * first * t["moment2_ns2"][:, i] + 2.0 * first**3
    skewness = (third / variance**1.5).max(axis=0)
    widest = variance.max(axis=0)
    stays = (skewness < 1.0) & (widest < (2.0 * c.quiet_ns) ** 2)
    becomes = (skewness < 0.5) & (widest < c.quiet_ns**2)
    enough = since >= _CALM_BLOCKS
    t["quiet"][i] = np.where(enough, np.where(t["quiet"][i], stays, becomes), t["quiet"][i])
