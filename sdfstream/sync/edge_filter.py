r"""What each session knows by itself about its two clocks: a two-state filter, and the level of its path.

A *site* is (d, g): edge offset (reflector − sender) and its slope, with their covariance. It holds the session's own
evidence only, so that the mesh can add the sites up (`solve`) without counting anything twice. Between blocks it ages
with the random walk of both clocks,

.. math:: q_e^2 = k\,(q_a^2 + q_b^2), \qquad k = P_{site} / P_{mesh},

k being how much better the mesh knows the difference than this session does. In a mesh the wander of a clock is
learned from all its sessions together, so each must forget k times as fast: scaling noise and wander of a Kalman
filter alike scales its variance alike, hence k sessions so aged add up to the filter that had all their data.

The *level* D of the path (half the sum of both directions' floors, free of clock error) is one number with variance
and with its covariance to the mesh's idea of d.

What packets say about clocks: every delay is a wall.

A packet from a to b that was corrected along the predicted line of clock difference took

.. math:: u = D + s + \epsilon, \qquad l = D - s + \epsilon'

there and back: s the error of the prediction, D the level of the path, and :math:`\epsilon \ge 0` what it met on its
way. So s + D can lie no higher than the smallest u, and D − s no higher than the smallest l: two soft walls
(`numeric.truncated`), between which the clock difference walks. Only the few packets that hardly met a queue come near
enough to say anything; all others cost nothing and teach nothing, whatever law their delays follow. A standing queue
in one direction takes that wall away, and the other one goes on measuring.

Between the walls there is a *tilt*: a smallest delay of scale :math:`\nu` is as likely near its wall as
:math:`e^{-\epsilon/\nu}`, which pulls s + D up by :math:`1/\nu` per block, and D − s likewise. For two directions alike
the pull on s cancels, whatever the law; that on D is what makes the level rise to the walls. :math:`\nu` is the median
of the blocks' smallest excess over log 2: no law is assumed, and a path on which most blocks meet no queue at all has
the sharpest walls.

Each block is judged along what the mesh knows, as long as that is better than what the session knows by itself
(a session that disagrees with the mesh is judged by itself). What it taught goes to the session's site and level.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.numeric.truncated import push
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import FWD, REV, Blocks
from sdfstream.sync.config import SyncConfig

UNKNOWN: Final = 1e18
"""ns²: a clock or session of which nothing is known."""
_MOST: Final = 64.0
"""k at most; beyond, a session hardly counts in the mesh anyway."""


def site_table() -> Table:
    """One row per session; wide columns have a lane per direction (0 forward, 1 reverse)."""
    none, never = np.zeros(2), np.full(2, np.inf)
    return Table(
        {
            "pair": np.int64(0),
            "path": np.int64(0),
            "clock_src": np.int64(0),
            "clock_dst": np.int64(0),
            "seen_at": np.float64(-1e18),
            "heard_at": np.float64(-1e18),
            "began_at": np.float64(0.0),
            # the site
            "d": np.float64(0.0),
            "g": np.float64(0.0),
            "dd": np.float64(UNKNOWN),
            "dg": np.float64(0.0),
            "gg": np.float64(0.0),
            # the level
            "level": np.float64(0.0),
            "level_var": np.float64(UNKNOWN),
            "level_cov": np.float64(0.0),
            "told_mean": np.float64(0.0),
            "told_var": np.float64(0.0),
            "told_at": np.float64(0.0),
            # what packets of this path add to its floor (`walls`)
            "blocks": np.float64(0.0),
            # quiet sessions (`quiet`)
            "about": np.float64(0.0),
            "moments": np.float64(0.0),
            "quiet": np.bool_(False),
            # broken and lost floors (`breaks`)
            "breach": np.int64(0),
            "above": np.int64(0),
            # agreement with the mesh (`reduce`)
            "square": np.float64(0.0),
            "bias": np.float64(0.0),
            "settled": np.float64(0.0),
        },
        {
            "scale": none,
            "first": none,
            "second": none,
            "third": none,
            "low": never,
            "lately": never,
            "before": never,
        },
    )


def age(t: Table, dt_s: float, walk: Float64s, phase: Float64s, mesh_var: Float64s, drift_ns: float) -> None:
    """Carry every site `dt_s` forward.

    Parameters
    ----------
    walk, phase : (sessions,) float64
        Random walks of both clocks together: of the frequency (ns²/s³), of the phase (ns²/s).
    mesh_var : (sessions,) float64, ns²
        How well the mesh knows each session's clock difference.
    drift_ns : float
        Random walk of a path's level, ns per √s.
    """
    dd, dg, gg = t["dd"], t["dg"], t["gg"]
    k = np.clip(dd / mesh_var, 1.0, _MOST)
    q = walk * k
    t["d"] += t["g"] * dt_s
    t["dd"] = np.minimum(dd + (2.0 * dg + gg * dt_s) * dt_s + q * (dt_s**3 / 3.0) + phase * k * dt_s, UNKNOWN)
    t["dg"] = dg + gg * dt_s + q * (dt_s * dt_s / 2.0)
    t["gg"] = gg + q * dt_s
    t["level_var"] = np.minimum(t["level_var"] + drift_ns * drift_ns * dt_s, UNKNOWN)


def start(t: Table, i: Int64s, d: Float64s, level: Float64s, skew_limit_ppb: float) -> None:
    """Sites of which a first block is known: `d` and `level` as far off as half the level at most, any slope."""
    spread = np.maximum(level * level, 1e4)
    t["d"][i], t["g"][i] = d, 0.0
    t["dd"][i], t["dg"][i], t["gg"][i] = spread, 0.0, skew_limit_ppb**2
    # nothing says yet how much of the smallest delay was queue
    t["level"][i] = 0.75 * level
    t["level_var"][i], t["level_cov"][i] = spread, 0.0
    t["about"][i] = level
    t["scale"][:, i] = np.maximum(0.25 * level, 10.0)
    t["told_var"][i] = 0.0
    for name in ("blocks", "moments", "breach", "above", "settled", "square", "bias"):
        t[name][i] = 0
    t["quiet"][i] = False


def then(t: Table, i: Int64s, age_s: Float64s) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """The sites' lines followed back by `age_s`: offset y then, its variance, and its covariances with d and g now."""
    with_d = t["dd"][i] - age_s * t["dg"][i]
    with_g = t["dg"][i] - age_s * t["gg"][i]
    return t["d"][i] - age_s * t["g"][i], np.maximum(with_d - age_s * with_g, 1e-9), with_d, with_g


def update(t: Table, i: Int64s, age_s: Float64s, y_ref: Float64s, info: Float64s, precision: Float64s) -> None:
    """Take in news about the offsets y of `age_s` ago: `precision` (1/ns²), `info` = precision · (value − y_ref), and
    any tilt.
    """
    y, variance, with_d, with_g = then(t, i, age_s)
    less = 1.0 / (1.0 + precision * variance)
    step = (info - precision * (y - y_ref)) * less
    gain = precision * less
    t["d"][i] += with_d * step
    t["g"][i] += with_g * step
    t["dd"][i] = np.maximum(t["dd"][i] - with_d * with_d * gain, 1e-9)
    t["dg"][i] -= with_d * with_g * gain
    t["gg"][i] = np.maximum(t["gg"][i] - with_g * with_g * gain, 1e-9)


def doubt(t: Table, i: Int64s, size: Float64s) -> None:
    """Something was off by `size` ns: widen the offsets by it, and the slopes by what such an error may have bent."""
    square = size * size
    t["dd"][i] += square
    t["gg"][i] += np.minimum(0.05 * square, 1e6)


_SIGNS: Final = ((FWD, 1.0), (REV, -1.0))
_LOG_2: Final = float(np.log(2.0))
_NEAR: Final = 6.0
"""A wall further away than so many standard deviations says nothing."""
_GAIN: Final = 0.08
"""Step of the running median, in e-foldings per block."""
_LEAST_SCALE: Final = 1.0
"""ns."""
_TIGHT: Final = 0.98
"""Correlation of offset and level at most: a singular covariance is nobody's knowledge."""
_FRESH_S: Final = 0.3
"""Older packets (s) than this are not followed up in the level (`pass_on`)."""
YOUNG_BLOCKS: Final = 50.0
"""So many blocks long a session makes up its own mind."""
_STILL: Final = 2.0
"""Square of the lasting disagreement counts at most so many times that of its recent mean."""
_AGREES: Final = 16.0
"""A session agrees with the mesh within four standard deviations."""


class View(NamedTuple):
    """What is expected of each block's clock difference, seen along the predicted line (so its mean is near 0)."""

    mean: Float64s
    """(blocks,) ns."""
    variance: Float64s
    """(blocks,) ns²."""
    line: Float64s
    """(blocks,) ns: the predicted difference itself, when the packets passed."""
    now: Float64s
    """(blocks,) ns: the predicted difference now."""
    age_s: Float64s
    """(blocks,) how long ago the packets passed, on average."""
    soft: Float64s
    """(blocks,) ns²: how soft walls are: stamps' noise, and what the line may have bent since the packets passed."""
    alone: Bools
    """(blocks,) judged by what the session knows itself."""

    def pick(self, which: Int64s) -> View:
        """Those blocks only."""
        return View._make(column[which] for column in self)


class Expected(NamedTuple):
    """What the mesh expects of sessions' clock differences, (sessions,): the line, and its covariance."""

    line: Float64s
    slope: Float64s
    xx: Float64s
    xg: Float64s
    gg: Float64s

    def pick(self, which: Int64s) -> Expected:
        """Those sessions only."""
        return Expected(*(column[which] for column in self))


def view(t: Table, i: Int64s, expected: Expected, age_s: Float64s, soft: Float64s) -> View:
    """The mesh's expectation where it is the better one and the session agrees with it, else the session's own.

    A young session makes up its own mind first: seen along a line that it was not asked about, a clock that lies to it
    would look like a queue that always stands.
    """
    line = expected.line - age_s * expected.slope
    mesh_var = np.maximum(expected.xx - age_s * (2.0 * expected.xg - age_s * expected.gg), 1e-9)
    # what it lastingly disagrees by, while it still does
    known = mesh_var + np.minimum(t["square"][i], _STILL * t["bias"][i] ** 2)
    y, own, _, _ = then(t, i, age_s)
    off = y - line
    alone = (own <= known) | (t["blocks"][i] < YOUNG_BLOCKS) | (off * off > _AGREES * (own + known))
    return View(np.where(alone, off, 0.0), np.where(alone, own, known), line, expected.line, age_s, soft, alone)


def pass_on(t: Table, i: Int64s, line: Float64s, mesh_var: Float64s) -> None:
    """What others taught the mesh about d in the last tick, passed on to the levels of the sessions judged in it.

    `line` and `mesh_var` (sessions,): the mesh's difference and its variance as of the last tick.
    """
    told = t["told_var"][i]
    slope = t["level_cov"][i] / told
    share = np.clip(mesh_var / told, 0.0, 1.0)
    t["level"][i] += slope * (line - t["told_mean"][i])
    # a break may have made the level surer meanwhile than the covariance allows: then as sure as can be, never surer
    level_var = t["level_var"][i]
    t["level_var"][i] = np.maximum(level_var - slope * t["level_cov"][i] * (1.0 - share), 1e-6 * level_var)
    t["level_cov"][i] *= share
    t["told_var"][i] = 0.0


def learn_minima(t: Table, i: Int64s, low: Float64s, v: View, c: SyncConfig) -> None:
    """Take in one block of each of the sessions `i`.

    Parameters
    ----------
    low : (2, blocks) float64, ns
        Smallest corrected delay of each direction; +inf: none.
    """
    mean, var = v.mean, v.variance
    level, level_var = t["level"][i], t["level_var"][i]
    most = _TIGHT * np.sqrt(var * level_var)
    cov = np.clip(t["level_cov"][i], -most, most)
    tilt = _scales(t, i, low, mean, level, v.soft, var + level_var)
    # tilt of the two directions: exp(tilt_f (s + D) + tilt_r (D − s))
    along, up = tilt[FWD] - tilt[REV], tilt[FWD] + tilt[REV]
    moved = mean + var * along + cov * up
    level = level + cov * along + level_var * up
    left, level_left, cov_left = var, level_var, cov
    for lane, sign in _SIGNS:
        to_s = sign * left + cov_left
        to_level = sign * cov_left + level_left
        total = np.maximum(sign * to_s + to_level, 1e-12)
        at = sign * moved + level
        hit = np.flatnonzero(low[lane] - at < _NEAR * np.sqrt(total + v.soft))
        if not hit.size:
            continue
        shift, drop = push(at[hit], total[hit], low[lane][hit], v.soft[hit])
        a, b = to_s[hit] / total[hit], to_level[hit] / total[hit]
        moved[hit] += a * shift
        level[hit] += b * shift
        left, level_left, cov_left = left.copy(), level_left.copy(), cov_left.copy()
        left[hit] -= a * a * drop
        level_left[hit] -= b * b * drop
        cov_left[hit] -= a * b * drop
    left = np.clip(left, 1e-6 * var, var)
    precision = 1.0 / left - 1.0 / var
    update(t, i, v.age_s, v.line + mean, (moved - mean) / left, precision)
    t["level"][i], t["level_cov"][i] = level, cov_left
    t["level_var"][i] = np.maximum(level_left, 1e-6 * level_var)
    t["told_mean"][i] = v.now + moved
    # what is told of long ago says nothing of what others taught since
    t["told_var"][i] = np.where(v.alone | (v.age_s > _FRESH_S), 0.0, left)


def learn_means(t: Table, b: Blocks, use: Int64s, v: View, c: SyncConfig) -> None:
    """Take in the means of blocks `use` of quiet sessions, but for those whose mean says that they met a queue.

    Half the difference of the two means measures the clock difference; its variance is that of the means.
    """
    i = b.session[use]
    first = t["first"].take(i, axis=1)
    n = np.maximum(b.n.take(use, axis=1), 1.0)
    spread = np.maximum(t["second"].take(i, axis=1) - first**2, c.jitter_ns**2) / n
    mean = b.sums[0].take(use, axis=1) / n
    clean = (mean - first < c.clean_sigmas * np.sqrt(spread + v.variance[use])).all(axis=0)
    precision = np.where(clean, 4.0 / spread.sum(axis=0), 0.0)
    value = 0.5 * (mean[FWD] - mean[REV])
    update(t, i, v.age_s[use], v.line[use], precision * value, precision)
    t["told_var"][i] = 0.0


def _scales(
    t: Table, i: Int64s, low: Float64s, mean: Float64s, level: Float64s, soft: Float64s, known: Float64s
) -> Float64s:
    """Running median of each direction's smallest excess, as the tilt 1/ν; (2, blocks), 0 where nothing came.

    A tilt never pulls further than one standard deviation of what is known: an estimate must not run after its own
    idea of the scale.
    """
    t["blocks"][i] += 1.0
    gain = np.maximum(_GAIN, 1.0 / (t["blocks"][i] + 1.0))
    least = np.sqrt(soft)
    most = 1.0 / np.sqrt(known + soft)
    tilt = np.empty_like(low)
    for lane, sign in _SIGNS:
        came = low[lane] < np.inf
        scale = t["scale"][lane][i]
        above = low[lane] - sign * mean - level > _LOG_2 * scale
        scale = np.clip(np.where(came, scale * np.exp(np.where(above, gain, -gain)), scale), _LEAST_SCALE, 1e9)
        t["scale"][lane, i] = scale
        # soft walls pull softly, but only as long as they are soft: after a step they are so for some ticks
        tilt[lane] = np.where(came, np.minimum(1.0 / np.maximum(scale, least), most), 0.0)
    return tilt


def excess(low: Float64s, v: View, level: Float64s) -> Float64s:
    """By how much each direction's smallest delay lies above its wall's expected place; (2, blocks), ns."""
    return np.stack([low[FWD] - v.mean - level, low[REV] + v.mean - level])


def sigma(v: View, t: Table, i: Int64s) -> Float64s:
    """Standard deviation of that excess's expected place, (2, blocks), ns."""
    var = v.variance + t["level_var"][i] + v.soft
    twice = 2.0 * np.clip(t["level_cov"][i], -0.5 * var, 0.5 * var)
    return np.sqrt(np.maximum(np.stack([var + twice, var - twice]), 1e-6))


def gates(e: Float64s, s: Float64s, scale: Float64s, c: SyncConfig) -> tuple[Bools, Float64s]:
    """Blocks that no queue explains: broken ones (far below what is expected), and by how much others surprise, ns.

    A small surprise is doubt in the estimate, taken at once; a large one may be a stamp gone wrong, a shorter path or
    a step, and `breaks` waits for more of it.
    """
    short = np.where(np.isfinite(e), -e, 0.0)
    beyond = short > c.breach_sigmas * s
    broken: Bools = np.any(beyond & (short > c.breach_scales * scale), axis=0)
    size = np.where(broken, 0.0, np.where(short > c.doubt_sigmas * s, short, 0.0).max(axis=0))
    return broken, size
