"""Sessions: remembered floors, and what each block of exchanges says about the clock difference.

Per session the two directions see levels

    forward  u = s + D,    reverse  l = D − s,

s the *error of the predicted* clock difference (reflector − sender) and D the path's fixed delay. A block's smallest
delay in each direction lies an exponential amount above its level. `floor_update` turns it into moments of u and l;
together they say something about s, which goes to the mesh as a message (precision, precision × value) that holds no
more than this block's news, and about D, which stays with the session.

Only D's half sum is observable: a static asymmetry of a path counts as clock offset (docs/sync.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.numeric.onesided import floor_update
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table

FWD, REV = 0, 1


def session_table(config: SyncConfig) -> Table:
    """One row per session; wide columns have a lane per direction."""
    return Table(
        {
            "pair": (np.int64, 0),
            "path": (np.int64, 0),
            "clock_src": (np.int64, 0),
            "clock_dst": (np.int64, 0),
            "heard_at": (np.float64, -1e18),
            "blocks": (np.float64, 0.0),
            "d": (np.float64, 0.0),
            "d_variance": (np.float64, np.inf),
            "rtt_low": (np.float64, np.inf),
            "rtt_since": (np.float64, -1e18),
            "excess": (np.float64, 0.0),
            "last": (np.float64, np.nan),
            "rough": (np.float64, 0.0),
            "breach": (np.int64, 0),
        },
        2,
        ("excess", "last", "rough", "breach"),
    )


class Messages(NamedTuple):
    """What a tick says about clock differences: sum over a session's news."""

    session: Int64s
    precision: Float64s
    shift: Float64s
    """precision × value, ns⁻¹."""
    tripped: Int64s
    """Sessions whose floor has been broken through often enough to be true."""
    size: Float64s
    """By how much, ns."""


def listen(table: Table, blocks: Blocks, s_variance: Float64s, config: SyncConfig) -> Messages:
    """Take in one tick of blocks; advance the sessions' floors; return the news about s.

    Parameters
    ----------
    s_variance : (blocks,) float64, ns²
        Variance of the predicted clock difference of each block's session.
    """
    i = blocks.session
    _first_sight(table, blocks)
    known = np.isfinite(table["d_variance"][i])
    d, d_variance = table["d"][i], np.where(known, table["d_variance"][i], 1e18)
    css, cdd, csd = s_variance.copy(), d_variance.copy(), np.zeros(i.size)
    s, level_d = np.zeros(i.size), d.copy()
    breached = np.zeros((2, i.size), dtype=np.bool_)
    for lane, sign in ((FWD, 1.0), (REV, -1.0)):
        n, minimum = blocks.n[lane], blocks.minimum[lane]
        heard = n > 0
        prior = np.sqrt(s_variance + d_variance + config.jitter_ns**2)
        breached[lane] = heard & (minimum < d - config.breach_sigmas * prior)
        mean = level_d + sign * s
        vs = css + sign * csd
        vd = cdd + sign * csd
        variance = vs + sign * csd + cdd
        use = heard & ~breached[lane]
        excess = _expected_excess(table, lane, i) / np.maximum(n, 1.0)
        jitter = np.full(i.size, config.jitter_ns)
        low = np.where(use, minimum, mean)  # a harmless stand-in where there is nothing to learn
        after, left = floor_update(mean, variance, low, excess, jitter)
        ks, kd = sign * vs / variance, vd / variance
        move = np.where(use, after - mean, 0.0)
        drop = np.where(use, variance - left, 0.0)
        s = s + ks * move
        level_d = level_d + kd * move
        css = css - ks * ks * drop
        csd = csd - ks * kd * drop
        cdd = cdd - kd * kd * drop
    breached &= known
    return _conclude(table, blocks, (s, css, level_d, cdd), s_variance, breached, config)


def _first_sight(table: Table, blocks: Blocks) -> None:
    """A session's first block with both directions sets its floor, with a variance as wide as the floor itself."""
    i = blocks.session
    fresh = np.isinf(table["d_variance"][i]) & (blocks.n[FWD] > 0) & (blocks.n[REV] > 0)
    if fresh.any():
        half = 0.5 * (blocks.minimum[FWD] + blocks.minimum[REV])[fresh]
        rows = i[fresh]
        guess = np.maximum(half, 100.0)
        table["d"][rows] = half
        table["d_variance"][rows] = (0.5 * guess) ** 2
        table["excess"][:, rows] = 0.25 * guess


def _conclude(
    table: Table,
    blocks: Blocks,
    local: tuple[Float64s, Float64s, Float64s, Float64s],
    s_variance: Float64s,
    breached: Bools,
    config: SyncConfig,
) -> Messages:
    """Store the floors; divide the prior out of the posterior of s."""
    i = blocks.session
    s, css, level_d, cdd = local
    known = np.isfinite(table["d_variance"][i])
    table["d"][i] = np.where(known, level_d, table["d"][i])
    table["d_variance"][i] = np.where(known, np.maximum(cdd, 1e-6), np.inf)
    # A pure tilt has no precision of its own; a trace of it keeps the message normal and its force unchanged.
    precision = np.maximum(1.0 / np.maximum(css, 1e-6) - 1.0 / s_variance, 1e-6 / s_variance)
    shift = s * (precision + 1.0 / s_variance)
    usable = known & (s_variance > 0.0) & ((blocks.n[FWD] > 0) | (blocks.n[REV] > 0))
    _learn_excess(table, blocks, s, level_d, breached, config)
    tripped, size = _broken(table, blocks, breached, config)
    return Messages(i[usable], precision[usable], shift[usable], tripped, size)


def _broken(table: Table, blocks: Blocks, breached: Bools, config: SyncConfig) -> tuple[Int64s, Float64s]:
    """Count blocks that lie impossibly low; after some in a row, believe them.

    Where the round trip, which no clock error can shorten, is below the floor too, the path has become shorter and its
    floor is learned anew; otherwise a clock stepped, which is for the mesh to tell.
    """
    i = blocks.session
    count = np.where(breached, table["breach"][:, i] + 1, np.where(blocks.n > 0, 0, table["breach"][:, i]))
    table["breach"][:, i] = count
    trip = (count >= config.breach_blocks).any(axis=0) & breached.any(axis=0)
    if not trip.any():
        return i[:0], np.empty(0)
    rows = i[trip]
    size = table["d"][rows] - np.where(breached, blocks.minimum, np.inf).min(axis=0)[trip]
    doubt = 2.0 * config.breach_sigmas * np.sqrt(table["d_variance"][rows])
    shorter = rows[blocks.rtt[trip] < 2.0 * table["d"][rows] - doubt]
    # forgotten floors are set afresh by the next block (`_first_sight`)
    table["d_variance"][shorter] = np.inf
    table["blocks"][rows] = 0.0
    table["last"][:, rows] = np.nan
    table["breach"][:, rows] = 0
    return rows, size


def _expected_excess(table: Table, lane: int, i: Int64s) -> Float64s:
    """Mean excess of one packet over the floor, for the likelihood.

    The larger of the level-free scale and the *smaller* direction's excess over its level. A direction's own excess
    over its own level would feed back: a level too low makes its excess large, which weakens just the tilt that would
    raise it, and a standing queue looks the same. While a session is young the scale is doubted.
    """
    young = 1.0 + 3.0 / np.maximum(table["blocks"][i], 1.0)
    both = table["excess"][:, i].min(axis=0)
    result: Float64s = young * np.maximum(both, 0.7 * table["rough"][lane, i])
    return result


def _learn_excess(
    table: Table, blocks: Blocks, s: Float64s, level_d: Float64s, breached: Bools, config: SyncConfig
) -> None:
    """Mean excess of a single packet as the minima show it, in two ways, each with a memory of 80 blocks.

    `excess`: minimum − level, times n (for exponential excess, E[min of n] = mean / n). `rough`: difference of two
    successive minima, times n, which has the same mean but needs no level; it keeps a young session, whose level
    fits its few minima too well, from trusting them.
    """
    i = blocks.session
    table["blocks"][i] += 1.0
    age = table["blocks"][i]
    for lane, sign in ((FWD, 1.0), (REV, -1.0)):
        n = blocks.n[lane]
        use = (n > 0) & ~breached[lane]
        low = np.where(use, blocks.minimum[lane], 0.0)
        seen = np.maximum(low - level_d - sign * s, 0.25 * config.jitter_ns) * n
        old = table["excess"][lane, i]
        table["excess"][lane, i] = np.where(use, old + np.maximum(1.0 / age, 1.0 / 80.0) * (seen - old), old)
        step = np.abs(low - table["last"][lane, i]) * n
        old = table["rough"][lane, i]
        gain = np.maximum(1.0 / np.maximum(age - 1.0, 1.0), 1.0 / 80.0)
        table["rough"][lane, i] = np.where(use & ~np.isnan(step), old + gain * (step - old), old)
        table["last"][lane, i] = np.where(use, low, table["last"][lane, i])
