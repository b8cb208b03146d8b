"""Sessions: remembered floors, and what each block of exchanges says about the clock difference.

Per session the two directions see levels

    forward  u = s + D,    reverse  l = D − s,

s the *error of the predicted* clock difference (reflector − sender) and D the path's fixed delay. A block's smallest
delay in each direction lies an exponential amount above its level. `floor_update` turns it into moments of u and l;
together they say something about s, which goes to the mesh as a message (precision, precision × value) that holds no
more than this block's news, and about D, which stays with the session together with its covariance with s.

Only D's half sum is observable: a static asymmetry of a path counts as clock offset (docs/sync.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.numeric.onesided import floor_update
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.noise import expected_excess, learn_noise
from sdfstream.sync.table import Table

FWD, REV = 0, 1
SIGNS = ((FWD, 1.0), (REV, -1.0))
_LEAST_VARIANCE = 1e-3


def session_table() -> Table:
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
            "d_at": (np.float64, 0.0),
            "covariance": (np.float64, 0.0),
            "excess": (np.float64, 0.0),
            "last": (np.float64, np.nan),
            "rough": (np.float64, 0.0),
            "breach": (np.int64, 0),
        },
        2,
        ("excess", "last", "rough", "breach"),
    )


class Joint(NamedTuple):
    """Normal law of (s, D) per session: means, variances, covariance; ns and ns²."""

    s: Float64s
    d: Float64s
    ss: Float64s
    dd: Float64s
    sd: Float64s


class Messages(NamedTuple):
    """What a tick says about clock differences, session by session."""

    session: Int64s
    precision: Float64s
    """ns⁻²."""
    shift: Float64s
    """precision × value, ns⁻¹."""
    posterior: Joint
    """Of these sessions, before the mesh is heard."""
    tripped: Int64s
    """Sessions whose floor has been broken through often enough to be true."""
    size: Float64s
    """By how much, ns."""


def listen(
    table: Table, blocks: Blocks, s_variance: Float64s, aside: Float64s, at: float, config: SyncConfig
) -> Messages:
    """Take in one tick of blocks; return the news about s. `settle` must follow with the mesh's answer.

    Parameters
    ----------
    s_variance : (blocks,) float64, ns²
        Variance of the predicted clock difference of each block's session, at the instant `at`.
    aside : (blocks,) float64, ns²
        More variance of it at the block's own mean instant, for not knowing the skew.
    at : float
        Internal time, ns.
    """
    i = blocks.session
    _first_sight(table, blocks, at)
    known = np.isfinite(table["d_variance"][i])
    prior = _prior(table, i, s_variance + aside, at, config)
    local = prior
    breached = np.zeros((2, i.size), dtype=np.bool_)
    excess = expected_excess(table, i)
    for lane, sign in SIGNS:
        local, breached[lane] = _hear(blocks, lane, sign, excess[lane], prior, local, config)
    breached &= known
    # A pure tilt has no precision of its own; a trace of it keeps the message normal and its force unchanged.
    precision = np.maximum(1.0 / local.ss - 1.0 / prior.ss, 1e-6 / prior.ss)
    shift = local.s * (precision + 1.0 / prior.ss)
    blur = 1.0 / (1.0 + precision * aside)
    precision, shift = precision * blur, shift * blur
    learn_noise(table, blocks, local.d + local.s, local.d - local.s, ~breached, config)
    tripped, size = _broken(table, blocks, breached, config)
    usable = known & ~breached.all(axis=0) & np.isfinite(table["d_variance"][i])
    return Messages(i[usable], precision[usable], shift[usable], Joint(*(c[usable] for c in local)), tripped, size)


def settle(table: Table, m: Messages, moved: Float64s, s_variance: Float64s) -> None:
    """The mesh has spoken: it moved the predictions of s by `moved` (by session), now of variance `s_variance`.

    What this session knows of D given s stands; s itself is now as the mesh says. All that is remembered relative to
    the prediction moves the other way.
    """
    i, p = m.session, m.posterior
    slope = p.sd / p.ss
    table["d"][i] = p.d + slope * (moved[i] - p.s)
    rest = np.maximum(p.dd - slope * p.sd, _LEAST_VARIANCE)
    # the mesh cannot know s worse than this session alone does; its own figure treats the clocks as independent
    ss = np.minimum(s_variance[i], p.ss)
    table["d_variance"][i] = rest + slope * slope * ss
    table["covariance"][i] = slope * ss
    table["last"][FWD] -= moved
    table["last"][REV] += moved


def _prior(table: Table, i: Int64s, s_variance: Float64s, at: float, config: SyncConfig) -> Joint:
    """(s, D) before this block: D drifts a little; sessions without a floor get a stand-in."""
    known = np.isfinite(table["d_variance"][i])
    drift = config.floor_drift_ns**2 * np.maximum(at - table["d_at"][i], 0.0) * 1e-9
    table["d_at"][i] = at
    dd = np.where(known, table["d_variance"][i] + drift, 1e18)
    most = 0.999 * np.sqrt(s_variance * dd)
    sd = np.clip(table["covariance"][i], -most, most)
    return Joint(np.zeros(i.size), table["d"][i], s_variance, dd, sd)


def _hear(
    blocks: Blocks, lane: int, sign: float, excess: Float64s, prior: Joint, p: Joint, config: SyncConfig
) -> tuple[Joint, Bools]:
    """One direction's minimum: posterior of (s, D), and where the minimum lies impossibly low (not used there)."""
    n, minimum = blocks.n[lane], blocks.minimum[lane]
    doubt = prior.ss + 2.0 * sign * prior.sd + prior.dd + config.jitter_ns**2
    breached = (n > 0) & (minimum < prior.d - config.breach_sigmas * np.sqrt(doubt))
    use = (n > 0) & ~breached
    mean = p.d + sign * p.s
    to_s, to_d = p.ss * sign + p.sd, p.sd * sign + p.dd
    variance = np.maximum(to_s * sign + to_d, _LEAST_VARIANCE)
    low = np.where(use, minimum, mean)  # a harmless stand-in where there is nothing to learn
    after, left = floor_update(mean, variance, low, excess / np.maximum(n, 1.0), np.full(n.size, config.jitter_ns))
    gain_s, gain_d = to_s / variance, to_d / variance
    move = np.where(use, after - mean, 0.0)
    drop = np.where(use, variance - left, 0.0)
    return (
        Joint(
            p.s + gain_s * move,
            p.d + gain_d * move,
            np.maximum(p.ss - gain_s * gain_s * drop, _LEAST_VARIANCE),
            np.maximum(p.dd - gain_d * gain_d * drop, _LEAST_VARIANCE),
            p.sd - gain_s * gain_d * drop,
        ),
        breached,
    )


def _first_sight(table: Table, blocks: Blocks, at: float) -> None:
    """A session's first block with both directions sets its floor, with a variance as wide as the floor itself."""
    i = blocks.session
    fresh = np.isinf(table["d_variance"][i]) & (blocks.n[FWD] > 0) & (blocks.n[REV] > 0)
    if fresh.any():
        half = 0.5 * (blocks.minimum[FWD] + blocks.minimum[REV])[fresh]
        rows = i[fresh]
        guess = np.maximum(half, 100.0)
        table["d"][rows] = half
        table["d_variance"][rows] = (0.5 * guess) ** 2
        table["d_at"][rows] = at
        table["covariance"][rows] = 0.0
        table["excess"][:, rows] = 0.25 * guess


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
