r"""What the sessions say about clock differences: windowed floors in both directions, each with its variance.

Along the predicted line of clock difference, the smallest delay of the last W blocks is, per direction,

.. math:: u = s + D + \epsilon_u, \qquad l = D - s + \epsilon_l,

s the error of the predicted difference (reflector − sender), D the path's fixed delay (half sum; a static asymmetry
counts as s and is not observable, docs/sync.md), :math:`\epsilon \ge 0` what queues left even in the smallest. So

.. math:: \hat{s} = (u - l) / 2, \qquad m = (u + l) / 2 = D + (\epsilon_u + \epsilon_l) / 2.

The margin m is free of clock error. It is remembered: where it stands above the smallest margin seen, at least one
direction holds no clean packet, and the excess, which bounds the error it can make, is added to the error (a standing
queue on one side thus silences a session instead of moving a clock). Where it falls below, either the path became
shorter or a clock stepped inside the window.

W is chosen per session: long windows have more packets and so less queueing noise, short ones less wander of the
clocks and less harm from a skew not yet known.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.ring import Ring
from sdfstream.sync.table import Table

FWD, REV = 0, 1
WINDOWS: Final = np.array([1, 2, 4, 10, 20, 40, 80])
"""Window lengths tried, in blocks."""
_SLOPE_NS: Final = 300.0
"""Most that an unknown slope may bend the line over a window whose margin is remembered."""
_BLOCK_S: Final = TICK_NS / NS_PER_S
_MEMORY: Final = 1.0 / 40.0
"""Gain of the learned figures of a session, per block."""


def session_table() -> Table:
    """One row per session; wide columns have a lane per direction."""
    return Table(
        {
            "pair": (np.int64, 0),
            "path": (np.int64, 0),
            "clock_src": (np.int64, 0),
            "clock_dst": (np.int64, 0),
            "seen_at": (np.float64, -1e18),
            "heard_at": (np.float64, -1e18),
            "blocks": (np.float64, 0.0),
            "d": (np.float64, np.inf),
            "d_at": (np.float64, 0.0),
            "excess": (np.float64, 0.0),
            "rate": (np.float64, 0.0),
            "misfit": (np.float64, 0.0),
            "breach": (np.int64, 0),
        }
    )


class Wander(NamedTuple):
    """How fast the predicted difference of each block's two clocks becomes wrong when looked at backwards."""

    phase: Float64s
    """(blocks,) ns² per s: random walk of the phase, both clocks."""
    frequency: Float64s
    """(blocks,) ns² per s³: random walk of the frequency, both clocks."""
    skew: Float64s
    """(blocks,) ns² per s²: variance of the skew estimate."""
    offset: Float64s
    """(blocks,) ns²: variance of the offset estimate."""


class Messages(NamedTuple):
    """What a tick says about clock differences, session by session."""

    session: Int64s
    value: Float64s
    """Error of the predicted difference (reflector − sender), ns."""
    variance: Float64s
    """Of the value, ns²."""
    weight: Float64s
    """Share of the window that is news: consecutive windows overlap, and the filter must not count a packet twice."""
    tripped: Int64s
    """Sessions whose floor was broken through often enough to be true."""
    size: Float64s
    """By how much the clock difference jumped, ns."""


def listen(
    table: Table, ring: Ring, b: Blocks, ahead: Float64s, skew_ppb: Float64s, wander: Wander, at: float, c: SyncConfig
) -> Messages:
    """Take in one tick of blocks; return what they say. `settle` must follow with what the mesh made of it.

    Parameters
    ----------
    ahead, skew_ppb : (blocks,) float64, ns and ppb
        Predicted clock difference (reflector − sender) at `at`, with which the blocks were corrected, and its slope.
    wander : Wander
    at : float
        Internal time, ns.
    """
    i, column = b.session, np.arange(b.session.size)
    ring.put(i, b.at, b.minimum[FWD], b.minimum[REV], ahead + skew_ppb * (b.at - at) / NS_PER_S)
    margins, values, span_s = _floors(*ring.along(i, at, ahead, skew_ppb))
    complete = np.isfinite(margins)
    _learn_traffic(table, b, np.where(complete[0], margins[0], np.inf))
    left = table["excess"][i] / np.maximum(table["rate"][i] * WINDOWS[:, None], 1.0)
    noise = 0.5 * left**2 + c.jitter_ns**2
    drift = wander.phase * span_s / 3.0 + wander.frequency * span_s**3 / 12.0 + wander.skew * span_s**2 / 4.0
    cost = np.where(complete, noise + drift, np.inf)
    best = np.argmin(cost, axis=0)
    pick = best, column
    usable, margin, value, variance = complete[pick], margins[pick], values[pick], cost[pick]
    shortest = margins[2]  # four blocks: what the path looks like now
    breached, tripped, size = _breaches(table, ring, i, usable, margin, variance, shortest, c)
    # a wrong slope makes both floors too low, and with them the margin: only a well-known line may teach the memory
    straight = wander.skew * span_s[pick] ** 2 < np.minimum(0.25 * noise[pick], _SLOPE_NS**2)
    above = _remember(table, i, usable & ~breached, straight, margin, at, c)
    # margins scatter above the smallest one by what queues leave in a window; only more than that tells of a queue
    above = np.maximum(above - 3.0 * left[pick], 0.0)
    # looking back along an unknown slope errs the same way in every tick: such a block is no news
    aside = wander.skew * ((b.at - at) / NS_PER_S) ** 2
    usable &= ~breached & (aside < np.maximum(np.maximum(noise[pick], _SLOPE_NS**2), 0.1 * wander.offset))
    variance = np.maximum(variance, table["misfit"][i]) + above**2 + aside
    news = 1.0 / WINDOWS[best]
    return Messages(i[usable], value[usable], variance[usable], news[usable], tripped, size)


def _floors(age_s: Float64s, fwd: Float64s, rev: Float64s) -> tuple[Float64s, Float64s, Float64s]:
    """Margin m and value s of every window, and how far back it reaches in s, each (windows, sessions)."""
    low_fwd = np.minimum.accumulate(fwd, axis=0)[WINDOWS - 1]
    low_rev = np.minimum.accumulate(rev, axis=0)[WINDOWS - 1]
    held = np.isfinite(fwd) | np.isfinite(rev)
    span_s = np.maximum.accumulate(np.where(held, np.abs(age_s), 0.0), axis=0)[WINDOWS - 1] + _BLOCK_S
    with np.errstate(invalid="ignore"):  # a window without one direction is inf − inf
        return 0.5 * (low_fwd + low_rev), 0.5 * (low_fwd - low_rev), span_s


def heard_lately(table: Table, since: float) -> tuple[Int64s, Int64s]:
    """Both clocks of every session that was heard since then."""
    fresh = table["heard_at"] >= since
    return table["clock_src"][fresh], table["clock_dst"][fresh]


def settle(table: Table, m: Messages, moved: Float64s) -> None:
    """The mesh has spoken: it moved the predicted differences by `moved` (by session); what is left is misfit.

    The misfit's mean square covers what the session's own noise model does not know: asymmetry, stamps' own noise.
    """
    i = m.session
    misfit = (m.value - moved[i]) ** 2
    old = table["misfit"][i]
    fresh = old == 0.0
    gain = _gain(table["blocks"][i], misfit, old)
    capped = np.minimum(misfit, 9.0 * np.maximum(old, m.variance))
    table["misfit"][i] = np.where(fresh, np.minimum(misfit, m.variance), old + gain * (capped - old))


def _gain(age: Float64s, seen: Float64s, old: Float64s) -> Float64s:
    """Gain of a learned figure: the mean of what was seen at first, then of the last 40 blocks; much faster down.

    The first packets of a run are often stamped badly; what they taught must not be remembered for long.
    """
    result: Float64s = np.where(seen < old / 8.0, 0.25, np.maximum(1.0 / age, _MEMORY))
    return result


def _learn_traffic(table: Table, b: Blocks, margin: Float64s) -> None:
    """Packets per block, and how far above the floor a packet lies on average, of the quieter direction."""
    i = b.session
    table["blocks"][i] += 1.0
    gain = np.maximum(1.0 / table["blocks"][i], _MEMORY)
    count = np.minimum(b.n[FWD], b.n[REV])
    table["rate"][i] += gain * (count - table["rate"][i])
    floor = np.minimum(table["d"][i], margin)
    known = np.isfinite(floor) & (count > 0)
    total = b.sums[FWD] + b.sums[REV]
    mean = total / np.maximum(b.n[FWD] + b.n[REV], 1.0) + np.where(np.isfinite(table["d"][i]), table["d"][i], 0.0)
    seen = np.where(known, np.maximum(mean - np.where(known, floor, 0.0), 0.0), 0.0)
    old = table["excess"][i]
    first = known & (old == 0.0)
    guess = np.maximum(seen, 0.25 * np.where(known, np.abs(floor), 0.0))  # one packet is no excess at all
    capped = np.minimum(seen, 4.0 * old + 1.0)  # a burst is not the traffic
    later = old + _gain(table["blocks"][i], seen, old) * (capped - old)
    table["excess"][i] = np.where(first, guess, np.where(known, later, old))


def _remember(
    table: Table, i: Int64s, usable: Bools, straight: Bools, margin: Float64s, at: float, c: SyncConfig
) -> Float64s:
    """Take the margins into the sessions' memory; ns by which each lies above it (0 where it is the smallest).

    The memory rises by `floor_drift_ns` per second, and is learned anew when nothing touched it for `floor_memory_ns`.
    """
    held = table["d"][i]
    idle_s = (at - table["d_at"][i]) / 1e9
    risen = held + c.floor_drift_ns * idle_s
    fresh = ~np.isfinite(held) | (margin <= risen) | (idle_s * 1e9 > c.floor_memory_ns)
    take = usable & fresh & straight
    table["d"][i] = np.where(take, margin, held)
    table["d_at"][i] = np.where(take, at, table["d_at"][i])
    above: Float64s = np.where(
        usable & ~take & np.isfinite(held), np.maximum(margin - np.where(np.isfinite(held), risen, 0.0), 0.0), 0.0
    )
    return above


def _breaches(
    table: Table,
    ring: Ring,
    i: Int64s,
    usable: Bools,
    margin: Float64s,
    variance: Float64s,
    shortest: Float64s,
    c: SyncConfig,
) -> tuple[Bools, Int64s, Float64s]:
    """Blocks whose margin lies impossibly low, and the sessions where that lasts: their older blocks are forgotten.

    Where the newest blocks alone have a low margin as well, the path has become shorter and its memory goes; where
    they have not, a clock stepped inside the window, which is for the mesh to tell.
    """
    doubt = c.breach_sigmas * np.sqrt(np.where(usable, variance, 0.0) + table["misfit"][i]) + c.jitter_ns
    held = np.where(np.isfinite(table["d"][i]), table["d"][i], -np.inf)
    breached = usable & (margin < held - doubt)
    table["breach"][i] = np.where(breached, table["breach"][i] + 1, 0)
    trip = table["breach"][i] >= c.breach_blocks
    rows = i[trip]
    if not rows.size:
        return breached, rows, np.empty(0)
    size = 2.0 * (held - margin)[trip]
    shorter = shortest[trip] < (held - doubt)[trip]
    ring.forget(rows, c.breach_blocks)
    table["breach"][rows] = 0
    table["d"][rows[shorter]] = np.inf
    return breached, rows[~shorter], size[~shorter]
