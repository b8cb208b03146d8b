r"""What the sessions say about clock differences: windowed floors in both directions, each with its variance.

Along the predicted line of clock difference, the smallest delay of a window is, per direction,

.. math:: u = s + D + \epsilon_u, \qquad l = D - s + \epsilon_l,

s the error of the predicted difference (reflector − sender), D the path's fixed delay (half sum; a static asymmetry
counts as s and is not observable, docs/sync.md), :math:`\epsilon \ge 0` what queues left even in the smallest. The mean
of :math:`\epsilon` is known from the session's own floors (`noise`) and taken off. So

.. math:: \hat{s} = (u - l) / 2, \qquad m = (u + l) / 2 = D + (\epsilon_u + \epsilon_l) / 2.

The margin m is free of clock error. It is remembered as D. Where it stands above D, queues left :math:`2 (m - D)` in
the two floors together, and `_shares` says in which: a standing queue on one side is booked as delay, and the other
side alone, with D, goes on measuring the clock.

A floor stands for the instant at which its packet passed, not for now: the message carries that age, so that the filter
learns the skew from it. The length of the window is chosen per session: long windows have more packets and so less
queueing noise, short ones less wander of the clocks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.records.units import NS_PER_S, TICK_NS, Bools, Float64s, Int64s
from sdfstream.sync import noise
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.ring import HALVES, OVERLAP, WINDOWS, Ring
from sdfstream.sync.table import Table

FWD, REV = 0, 1
_LOOKS: Final = 8
"""Looks per window length, once it is longer than as many ticks."""
_RARELY: Final = 8
"""At least one look in so many ticks."""
_BENT: Final = 0.35
"""Along a line wrong by g ns/s, the floors of W s have this times g W times the standard deviation for variance."""
_CLEAR: Final = 3.5
"""Standard deviations by which a margin must stand above the remembered one to tell of a queue."""


def session_table() -> Table:
    """One row per session; wide columns have a lane per direction."""
    columns, wide = noise.columns()
    return Table(
        {
            "pair": (np.int64, 0),
            "path": (np.int64, 0),
            "clock_src": (np.int64, 0),
            "clock_dst": (np.int64, 0),
            "seen_at": (np.float64, -1e18),
            "heard_at": (np.float64, -1e18),
            "tick": (np.int64, 0),
            "born": (np.int64, -1),
            "looked": (np.int64, 0),
            "every": (np.int64, 1),
            "d": (np.float64, np.inf),
            "d_variance": (np.float64, 0.0),
            "d_at": (np.float64, 0.0),
            "z": (np.float64, 0.0),
            "z_at": (np.float64, 0.0),
            "z_variance": (np.float64, np.inf),
            "z_news": (np.float64, 0.0),
            "z_span": (np.float64, 0.0),
            "said": (np.int64, -1_000),
            "trust": (np.float64, 1.0),
            "misfit": (np.float64, 0.0),
            "bias": (np.float64, 0.0),
            "settled": (np.float64, 0.0),
            "breach": (np.int64, 0),
            **columns,
        },
        2,
        wide,
    )


class Wander(NamedTuple):
    """How fast the predicted difference of each session's two clocks becomes wrong when looked at backwards."""

    phase: Float64s
    """(blocks,) ns² per s: random walk of the phase, both clocks."""
    frequency: Float64s
    """(blocks,) ns² per s³: random walk of the frequency, both clocks."""
    skew: Float64s
    """(blocks,) ns² per s²: variance of the skew estimate."""
    offset: Float64s
    """(blocks,) ns²: variance of the offset estimate."""
    share: Float64s
    """(blocks,) what the session's noise counts in the clocks' errors: one over their mean number of neighbours."""

    def pick(self, which: Bools | Int64s) -> Wander:
        """Those blocks only."""
        return Wander(*(column[which] for column in self))


class Messages(NamedTuple):
    """What a tick says about clock differences, session by session."""

    session: Int64s
    block: Int64s
    """Position among the tick's blocks."""
    value: Float64s
    """Error of the predicted difference (reflector − sender), ns."""
    variance: Float64s
    """Of the value, ns²."""
    news: Float64s
    """Share of the value that is news: consecutive windows overlap, and the filter must not count a packet twice."""
    age_s: Float64s
    """How long ago the difference was what it says, s."""
    span_s: Float64s
    """How far back the packets behind it reach, s."""


class Breaks(NamedTuple):
    """Sessions whose floor was broken through often enough to be true, and by how much, ns."""

    session: Int64s
    size: Float64s


def listen(
    table: Table, ring: Ring, b: Blocks, ahead: Float64s, skew_ppb: Float64s, wander: Wander, at: float, c: SyncConfig
) -> tuple[Messages, Breaks]:
    """Take in one tick of blocks; return what they say, which is also kept with the sessions.

    Parameters
    ----------
    ahead, skew_ppb : (blocks,) float64, ns and ppb
        Predicted clock difference (reflector − sender) at `at`, with which the blocks were corrected, and its slope.
    wander : Wander
    at : float
        Internal time, ns.
    """
    i = b.session
    fresh = table["born"][i] < 0
    ring.put(i, b.at, b.minimum[FWD], b.minimum[REV], ahead + skew_ppb * (b.at - at) / NS_PER_S)
    ago = np.where(fresh, 1, ring.ticks - table["tick"][i]).astype(np.float64)
    noise.learn_blocks(table, b, ago, c)
    table["tick"][i] = ring.ticks
    table["born"][i] = np.where(fresh, ring.ticks, table["born"][i])
    broken, breaks = _breaches(table, ring, b, ahead, wander.offset, c)
    averaged = noise.quiet_means(table, b, wander.offset, c)
    # staggered by session number: a tick looks at its share of the long windows
    due = (ring.ticks + i) % table["every"][i] == 0
    due |= ring.ticks - table["looked"][i] >= table["every"][i]
    some = np.flatnonzero(due & ~broken)
    floors = _look(table, ring, i[some], ahead[some], skew_ppb[some], wander.pick(some), at, c)
    by_floor = np.flatnonzero(~averaged.use[some] & np.isfinite(floors.value))
    by_mean = np.flatnonzero(averaged.use & averaged.clean & ~broken)
    means = _means(i, b, averaged, wander, at)
    floors = floors._replace(block=some)
    both = (Messages._make(f[by_floor] for f in floors), Messages._make(m[by_mean] for m in means))
    joined = Messages._make(np.concatenate(column) for column in zip(*both, strict=True))
    _say(table, joined, ahead[joined.block], skew_ppb[joined.block], ring.ticks, at)
    return joined, breaks


def _say(table: Table, m: Messages, ahead: Float64s, skew_ppb: Float64s, ticks: int, at: float) -> None:
    """Keep each session's message with it, as the clock difference at an instant: it outlives corrections."""
    i = m.session
    table["z"][i] = ahead - skew_ppb * m.age_s + m.value
    table["z_at"][i] = at - m.age_s * NS_PER_S
    table["z_variance"][i] = m.variance
    table["z_news"][i] = m.news
    table["z_span"][i] = m.span_s
    table["said"][i] = ticks


def _means(i: Int64s, b: Blocks, q: noise.Quiet, wander: Wander, at: float) -> Messages:
    """Quiet blocks: half the difference of the two means."""
    value = 0.5 * (q.mean[FWD] - q.mean[REV])
    age_s = (at - b.at) / NS_PER_S
    variance = 0.25 * q.variance.sum(axis=0) + wander.phase * np.abs(age_s)
    one = np.ones(i.size)
    return Messages(i, np.arange(i.size, dtype=np.int64), value, variance, one, age_s, one * TICK_NS / NS_PER_S)


def _look(
    table: Table,
    ring: Ring,
    i: Int64s,
    ahead: Float64s,
    skew_ppb: Float64s,
    wander: Wander,
    at: float,
    c: SyncConfig,
) -> Messages:
    """Choose each session's window, learn from it, and say what it says (NaN: nothing)."""
    fwd, rev = ring.floors(i, at, ahead, skew_ppb)
    low = np.stack([fwd.low, rev.low])
    ages = np.stack([fwd.age_s, rev.age_s])
    complete: Bools = np.isfinite(low[FWD]) & np.isfinite(low[REV])
    first = np.minimum(np.argmax(complete, axis=0), WINDOWS.size - 1), np.arange(i.size)
    noise.guess(table, i, np.where(complete[first], 0.5 * low[:, *first].sum(axis=0), 0.0))
    life = (ring.ticks - table["born"][i] + 1).astype(np.float64)
    lengths = np.minimum(WINDOWS[:, None].astype(np.float64), life)
    sigma = noise.floor_sigma(table, i, lengths, c)
    span_s = np.maximum(lengths * TICK_NS / NS_PER_S, np.where(complete, ages.max(axis=0), 0.0))
    left = 0.25 * (sigma**2).sum(axis=0)
    # on a line bent by an unknown skew the floors come from the window's ends, and fewer packets compete there
    spread = np.maximum(left, _BENT * np.sqrt(left * wander.skew) * span_s)
    drift = wander.phase * span_s / 3.0 + wander.frequency * span_s**3 / 12.0
    cost = np.where(complete, spread * wander.share + drift, np.inf)
    best = np.argmin(cost, axis=0)
    pick = best, np.arange(i.size)
    usable = complete[pick]
    sigma, spread = sigma[:, *pick], spread[pick]
    ticks = lengths[pick]
    every = np.where(usable, np.clip(ticks // _LOOKS, 1, _RARELY), 1)
    since = np.minimum((ring.ticks - table["looked"][i]).astype(np.float64), ticks)
    table["looked"][i] = ring.ticks
    table["every"][i] = every
    floor = np.where(usable, low[:, *pick], 0.0)
    _learn_excess(table, i, best, low, np.stack([fwd.older, rev.older]), life, since, wander.skew)
    floor = floor - sigma
    news = np.minimum(since / ticks, 1.0)
    # a line of wrong slope lowers both floors at opposite ends of the window: the margin comes out too low
    bend = 0.25 * wander.skew * span_s[pick] ** 2
    value, variance = _shares(table, i, usable, floor, sigma, spread, bend, news, wander.offset, at, c)
    age_s = 0.5 * ages[:, *pick].sum(axis=0)
    age_s = np.where(usable, age_s, 0.0)
    variance = variance + wander.phase * np.abs(age_s) + wander.frequency * np.abs(age_s) ** 3 / 3.0
    return Messages(i, i, np.where(usable, value, np.nan), variance, news, age_s, span_s[pick])


def _learn_excess(
    table: Table,
    i: Int64s,
    best: Int64s,
    low: Float64s,
    older: Float64s,
    life: Float64s,
    since: Float64s,
    skew: Float64s,
) -> None:
    """The window's older half against its newer one; of the longest windows not longer than the session's life."""
    j = np.clip(np.minimum(best, np.searchsorted(WINDOWS, life, side="right") - 1), 1, None)
    j = np.where(j == OVERLAP, OVERLAP - 1, j)
    everyone = np.arange(i.size)
    newer = low[:, j - 1, everyone]
    ticks = HALVES[j]
    bend = np.sqrt(skew) * ticks * TICK_NS / NS_PER_S
    noise.learn_floors(table, i, newer, older[:, j, everyone], ticks, since, bend)


def _shares(
    table: Table,
    i: Int64s,
    usable: Bools,
    floor: Float64s,
    sigma: Float64s,
    spread: Float64s,
    bend: Float64s,
    news: Float64s,
    known: Float64s,
    at: float,
    c: SyncConfig,
) -> tuple[Float64s, Float64s]:
    """Value and variance of each session's message, and what the margin teaches about D.

    While the margin is what it always was, half the difference of the floors. Above that, each direction measures s on
    its own with D, and one whose floor lies further above its level than the prediction (variance `known`) allows has a
    queue in it: that much goes into its error. What could lie in either goes into the message's.
    """
    margin, half = 0.5 * floor.sum(axis=0), 0.5 * (floor[FWD] - floor[REV])
    # what was taken off for the mean excess is as doubtful as the excess is
    doubt = spread + bend + 0.5 * (sigma**2).sum(axis=0) / np.maximum(table["pairs"][i], 1.0)
    above, d_variance = _remember(table, i, usable, margin, doubt, news, at, c)
    queued = above > 0.0
    if not queued.any():
        return half, spread
    d = np.where(np.isfinite(table["d"][i]), table["d"][i], margin)
    excess = np.stack([floor[FWD] - d, floor[REV] - d])  # over the level, if the prediction were right
    own = sigma**2 + d_variance
    over = np.maximum(excess - _CLEAR * np.sqrt(own + known), 0.0)
    lane = own + over**2
    weight = 1.0 / lane
    total = weight.sum(axis=0)
    value = (weight[FWD] * excess[FWD] - weight[REV] * excess[REV]) / total
    either = np.minimum(np.clip(excess, 0.0, None).min(axis=0), above)
    variance = 1.0 / total + either**2
    return np.where(queued, value, half), np.where(queued, np.maximum(variance, spread), spread)


def _remember(
    table: Table,
    i: Int64s,
    usable: Bools,
    margin: Float64s,
    spread: Float64s,
    news: Float64s,
    at: float,
    c: SyncConfig,
) -> tuple[Float64s, Float64s]:
    """Take the margins into the sessions' memory; ns by which each stands clearly above it, and the memory's variance.

    The memory is the mean of the margins near it; a margin clearly below replaces it, one clearly above tells of a
    queue, and is believed as a longer path when none was near for `floor_memory_ns`.
    """
    held, variance = table["d"][i], table["d_variance"][i]
    idle_s = (at - table["d_at"][i]) / NS_PER_S
    variance = variance + c.floor_drift_ns**2 * np.minimum(idle_s, 1e3)
    reach = _CLEAR * np.sqrt(variance + spread)
    with np.errstate(invalid="ignore"):
        off = np.where(np.isfinite(held), margin - held, 0.0)
    fresh = ~np.isfinite(held) | (off < -reach) | (idle_s * NS_PER_S > c.floor_memory_ns)
    near = usable & ~fresh & (off <= reach)
    fresh &= usable
    gain = variance / (variance + spread / np.maximum(news, 1e-3))
    table["d"][i] = np.where(fresh, margin, np.where(near, held + gain * off, held))
    after = np.where(fresh, spread, np.where(near, variance * (1.0 - gain), table["d_variance"][i]))
    table["d_variance"][i] = after
    table["d_at"][i] = np.where(fresh | near, at, table["d_at"][i])
    above = np.where(usable & ~fresh, np.maximum(off - reach, 0.0), 0.0)
    return np.where(above > 0.0, off, 0.0), after


def heard_lately(table: Table, since: float) -> tuple[Int64s, Int64s]:
    """Both clocks of every session that was heard since then."""
    fresh = table["heard_at"] >= since
    return table["clock_src"][fresh], table["clock_dst"][fresh]


def _breaches(
    table: Table, ring: Ring, b: Blocks, ahead: Float64s, known: Float64s, c: SyncConfig
) -> tuple[Bools, Breaks]:
    """Blocks with a packet impossibly fast for the remembered margin, and the sessions where that lasts.

    Where the newest ticks' margin lies below the memory too, the path has become shorter and its memory goes; where it
    does not, a clock stepped, which is for the mesh to tell. Older blocks are forgotten either way.
    """
    i = b.session
    held = table["d"][i]
    remembered = np.isfinite(held)
    doubt = c.breach_sigmas * np.sqrt(known + table["d_variance"][i] + table["misfit"][i] + c.jitter_ns**2)
    spread = np.sqrt(np.maximum(table["second"][:, i] - table["first"][:, i] ** 2, 0.0)).min(axis=0)
    doubt = doubt + np.where(table["quiet"][i], c.breach_sigmas * spread, 0.0)
    level = np.where(remembered, held, -np.inf)
    lowest = b.minimum.min(axis=0)
    broken = remembered & (lowest < level - doubt)
    table["breach"][i] = np.where(broken, table["breach"][i] + 1, 0)
    trip = table["breach"][i] >= c.breach_blocks
    if not trip.any():
        return broken, Breaks(i[trip], np.empty(0))
    rows = i[trip]
    # the first broken block may hold packets from before and after: it says nothing about either
    clean = max(c.breach_blocks - 1, 1)
    fwd, rev = ring.recent(rows, clean, ahead[trip])
    margin = 0.5 * (fwd + rev)
    shorter = margin < level[trip] - doubt[trip]
    ring.forget(rows, clean)
    for name in ("breach", "settled", "misfit", "bias"):
        table[name][rows] = 0
    table["said"][rows] = -1_000
    table["trust"][rows] = 1.0
    table["every"][rows] = 1
    table["born"][rows] = ring.ticks - clean + 1
    table["d"][rows[shorter]] = np.inf
    return broken, Breaks(rows[~shorter], (level - lowest)[trip][~shorter])
