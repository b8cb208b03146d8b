r"""The edge filter: what each session's packets prove about its two clocks.

**State.** Edge offset d (reflector − sender) and slope g with their covariance, and the *base delay* D of the path
(half the sum of both directions' floors, free of clock error) with its variance and its covariance to the mesh's d. It
holds the session's own evidence only, so that the mesh can add filters up (`mesh.solve`) without counting anything
twice. Between blocks it ages with the random walk of both clocks,

.. math:: q_e^2 = k\,(q_a^2 + q_b^2), \qquad k = P_{session} / P_{mesh},

k being how much better the mesh knows the difference than this session does. In a mesh the wander of a clock is
learned from all its sessions together, so each must forget k times as fast: scaling noise and wander of a Kalman
filter alike scales its variance alike, hence k sessions so aged add up to the filter that had all their data.

**Bounds.** A packet from a to b, corrected along the predicted line of clock difference, took

.. math:: u = D + s + \epsilon, \qquad l = D - s + \epsilon'

there and back: s the error of the prediction, :math:`\epsilon \ge 0` the queueing. So s + D is at most the smallest u,
and D − s at most the smallest l: two soft bounds (`numeric.truncated`). Only the few packets that hardly met a queue
come near enough to matter, whatever law delays follow. A standing queue in one direction removes that bound; the other
one goes on measuring.

Between the bounds there is a *tilt*: a smallest delay of scale :math:`\nu` is as likely near its bound as
:math:`e^{-\epsilon/\nu}`, which pulls s + D up by :math:`1/\nu` per block, and D − s likewise. For two directions
alike the pull on s cancels, whatever the law; that on D makes the base delay rise to the bounds. :math:`\nu` is the
median of the blocks' smallest excess over log 2 (`tilts`): no law is assumed, and a path on which most blocks meet no
queue at all has the sharpest bounds.

**Prior of a block.** The mesh's prediction, as long as that is better than the session's own line and the session
agrees with it; else the session's own line (`prior`). Quiet sessions (`blocks`) are averaged instead (`learn_means`);
of sessions at the floor (`stamp_noise`) smallest delays are measurements with normal noise, not bounds (`_averaged`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.numeric.truncated import truncate
from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import FWD, REV, Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.sessions import LEAST_SPREAD_NS2, UNKNOWN
from sdfstream.sync.tilts import tilts

_MOST: Final = 64.0
"""k at most; beyond, a session hardly counts in the mesh anyway."""


def age(t: Table, dt_s: float, walk: Float64s, phase: Float64s, mesh_var: Float64s, drift_ns: float) -> None:
    """Time update: carry every filter `dt_s` forward.

    Parameters
    ----------
    walk, phase : (sessions,) float64
        Random walks of both clocks together: of the frequency (ns²/s³), of the phase (ns²/s).
    mesh_var : (sessions,) float64, ns²
        How well the mesh knows each session's clock difference.
    drift_ns : float
        Random walk of a path's base delay, ns per √s.
    """
    dd, dg, skew_var_ppb2 = t["offset_var_ns2"], t["offset_slope_cov"], t["slope_var_ppb2"]
    k = np.clip(dd / mesh_var, 1.0, _MOST)
    q = walk * k
    t["offset_ns"] += t["slope_ppb"] * dt_s
    t["offset_var_ns2"] = np.minimum(
        dd + (2.0 * dg + skew_var_ppb2 * dt_s) * dt_s + q * (dt_s**3 / 3.0) + phase * k * dt_s, UNKNOWN
    )
    t["offset_slope_cov"] = dg + skew_var_ppb2 * dt_s + q * (dt_s * dt_s / 2.0)
    t["slope_var_ppb2"] = skew_var_ppb2 + q * dt_s
    t["base_delay_var_ns2"] = np.minimum(t["base_delay_var_ns2"] + drift_ns * drift_ns * dt_s, UNKNOWN)


def state_before(t: Table, i: Int64s, age_s: Float64s) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """Each line `age_s` ago: offset then (ns), its variance, and its covariances with offset and slope now."""
    with_d = t["offset_var_ns2"][i] - age_s * t["offset_slope_cov"][i]
    with_g = t["offset_slope_cov"][i] - age_s * t["slope_var_ppb2"][i]
    return t["offset_ns"][i] - age_s * t["slope_ppb"][i], np.maximum(with_d - age_s * with_g, 1e-9), with_d, with_g


def update(t: Table, i: Int64s, age_s: Float64s, y_ref: Float64s, info: Float64s, precision: Float64s) -> None:
    """Measurement update with offsets of `age_s` ago.

    `precision` in 1/ns²; `info` = precision · (value − y_ref), and any tilt.
    """
    y, variance, with_d, with_g = state_before(t, i, age_s)
    less = 1.0 / (1.0 + precision * variance)
    step = (info - precision * (y - y_ref)) * less
    gain = precision * less
    t["offset_ns"][i] += with_d * step
    t["slope_ppb"][i] += with_g * step
    t["offset_var_ns2"][i] = np.maximum(t["offset_var_ns2"][i] - with_d * with_d * gain, 1e-9)
    t["offset_slope_cov"][i] -= with_d * with_g * gain
    t["slope_var_ppb2"][i] = np.maximum(t["slope_var_ppb2"][i] - with_g * with_g * gain, 1e-9)


def inflate(t: Table, i: Int64s, size_ns: Float64s) -> None:
    """An error of `size_ns` was seen: add its square to the offset variance, and its bend to that of the slope."""
    square = size_ns * size_ns
    t["offset_var_ns2"][i] += square
    t["slope_var_ppb2"][i] += np.minimum(0.05 * square, 1e6)


_SIGNS: Final = ((FWD, 1.0), (REV, -1.0))
_NEAR: Final = 6.0
"""A bound further away than so many standard deviations changes nothing."""
_QUEUED: Final = 3.5
"""A delay so many standard deviations above what a session at the floor expects met a queue."""
_NOISY: Final = 1.4
"""Doubt of a session at the floor begins at so many times `doubt_sigmas`. At once one tick in some 7,000 opened a bound
twelvefold, and the estimate followed one stamp by 58 ns."""
_TIGHT: Final = 0.98
"""Correlation of offset and base delay at most: keeps the covariance regular."""
_FRESH_S: Final = 0.3
"""Older packets (s) than this do not change the base delay (`propagate`)."""
YOUNG_BLOCKS: Final = 50.0
"""A session uses its own prior for so many blocks."""
_STILL: Final = 2.0
"""Square of the lasting disagreement counts at most so many times that of its recent mean."""
_AGREES: Final = 16.0
"""A session agrees with the mesh within four standard deviations."""


class Prior(NamedTuple):
    """Each block's clock difference before its packets are used, along the predicted line (mean near 0)."""

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
    """(blocks,) ns²: variance of the bounds: stamps' noise, and the line's wander since the packets passed."""
    alone: Bools
    """(blocks,) the prior is the session's own line."""

    def pick(self, which: Int64s) -> Prior:
        """Those blocks only."""
        return Prior._make(column[which] for column in self)


class MeshPrediction(NamedTuple):
    """The mesh's prediction of clock differences, (sessions,): the line, ns and ppb, and its covariance."""

    line: Float64s
    slope: Float64s
    offset_var_ns2: Float64s
    offset_skew_cov: Float64s
    skew_var_ppb2: Float64s

    def pick(self, which: Int64s) -> MeshPrediction:
        """Those sessions only."""
        return MeshPrediction(*(column[which] for column in self))


class Passed(NamedTuple):
    """When each block's packets passed, (blocks,)."""

    age_s: Float64s
    """How long ago, on average."""
    span_s: Float64s
    """Between the first and the last of them."""
    noise_ns2: Float64s
    """Variance of stamps' noise and of the line's wander since."""


def prior(t: Table, i: Int64s, expected: MeshPrediction, b: Passed) -> Prior:
    """The mesh's prediction where it is the better one and the session agrees with it, else the session's own line.

    A young session uses its own: along the mesh's line a clock with a constant lie would look like a standing queue.

    A wrong slope spreads a block that spans some time about the line. After a step the session, alone, knows better
    than the mesh how wrong: bounds taken for sharp contradicted each other by 50 µs while a clock was slewed by
    500 ppm, and a session went astray from there by up to a second.
    """
    age_s = b.age_s
    line = expected.line - age_s * expected.slope
    mesh_var = np.maximum(
        expected.offset_var_ns2 - age_s * (2.0 * expected.offset_skew_cov - age_s * expected.skew_var_ppb2), 1e-9
    )
    # lasting disagreement, while it lasts
    known = mesh_var + np.minimum(t["disagreement_ns2"][i], _STILL * t["bias_ns"][i] ** 2)
    y, own, _, _ = state_before(t, i, age_s)
    off = y - line
    alone = (own <= known) | (t["blocks"][i] < YOUNG_BLOCKS) | (off * off > _AGREES * (own + known))
    wrong_ppb2 = t["slope_var_ppb2"][i] + (t["slope_ppb"][i] - expected.slope) ** 2
    wrong_ppb2 = np.where(alone, np.maximum(wrong_ppb2, expected.skew_var_ppb2), expected.skew_var_ppb2)
    soft = b.noise_ns2 + 0.25 * wrong_ppb2 * b.span_s**2
    return Prior(np.where(alone, off, 0.0), np.where(alone, own, known), line, expected.line, age_s, soft, alone)


def propagate(t: Table, i: Int64s, line: Float64s, mesh_var: Float64s) -> None:
    """Move base delays by what the mesh's other sessions changed of d since these sessions reported.

    `line` and `mesh_var` (sessions,): the mesh's difference and its variance as of the last tick.
    """
    reported_var = t["reported_var_ns2"][i]
    slope = t["base_delay_cov_ns2"][i] / reported_var
    share = np.clip(mesh_var / reported_var, 0.0, 1.0)
    t["base_delay_ns"][i] += slope * (line - t["reported_mean_ns"][i])
    # a break may have made the base delay surer than the covariance allows
    base_delay_var = t["base_delay_var_ns2"][i]
    t["base_delay_var_ns2"][i] = np.maximum(
        base_delay_var - slope * t["base_delay_cov_ns2"][i] * (1.0 - share), 1e-6 * base_delay_var
    )
    t["base_delay_cov_ns2"][i] *= share
    t["reported_var_ns2"][i] = 0.0


def learn_minima(t: Table, i: Int64s, min_delay_ns: Float64s, v: Prior, c: SyncConfig) -> None:
    """Measurement update of the sessions `i` with the smallest delays of one block each.

    Parameters
    ----------
    low : (2, blocks) float64, ns
        Smallest corrected delay of each direction; +inf: none.
    """
    base_delay_ns, base_delay_var = t["base_delay_ns"][i], t["base_delay_var_ns2"][i]
    mean, var = _narrowed(v, min_delay_ns)
    # a bound ties the two one to one; more is left of the session's own line, when the mesh's has just taken its place
    most = np.minimum(_TIGHT * np.sqrt(var * base_delay_var), var)
    cov = np.clip(t["base_delay_cov_ns2"][i], -most, most)
    over = np.stack([min_delay_ns[FWD] - mean - base_delay_ns, min_delay_ns[REV] + mean - base_delay_ns])
    at_floor, tilt = t["at_floor"][i], tilts(t, i, over, v.soft, var + base_delay_var)
    tilt[:, at_floor] = 0.0
    # tilt of the two directions: exp(tilt_f (s + D) + tilt_r (D − s))
    along, up = tilt[FWD] - tilt[REV], tilt[FWD] + tilt[REV]
    moved = mean + var * along + cov * up
    base_delay_ns = base_delay_ns + cov * along + base_delay_var * up
    left, base_delay_left, cov_left = var, base_delay_var, cov
    for direction, sign in _SIGNS:
        to_s = sign * left + cov_left
        to_base_delay = sign * cov_left + base_delay_left
        total = np.maximum(sign * to_s + to_base_delay, 1e-12)
        at = sign * moved + base_delay_ns
        hit = np.flatnonzero(min_delay_ns[direction] - at < _NEAR * np.sqrt(total + v.soft))
        if not hit.size:
            continue
        low, soft = min_delay_ns[direction][hit], v.soft[hit]
        shift, drop = truncate(at[hit], total[hit], low, soft)
        if at_floor.any():
            averaged = _averaged(low - at[hit], total[hit], soft)
            shift, drop = np.where(at_floor[hit], averaged, (shift, drop))
        a, b = to_s[hit] / total[hit], to_base_delay[hit] / total[hit]
        moved[hit] += a * shift
        base_delay_ns[hit] += b * shift
        left, base_delay_left, cov_left = left.copy(), base_delay_left.copy(), cov_left.copy()
        left[hit] -= a * a * drop
        base_delay_left[hit] -= b * b * drop
        cov_left[hit] -= a * b * drop
    left = np.clip(left, 1e-6 * var, var)
    precision = 1.0 / left - 1.0 / v.variance
    update(t, i, v.age_s, v.line + v.mean, (moved - v.mean) / left, precision)
    t["base_delay_ns"][i], t["base_delay_cov_ns2"][i] = base_delay_ns, cov_left
    t["base_delay_var_ns2"][i] = np.maximum(base_delay_left, 1e-6 * base_delay_var)
    t["reported_mean_ns"][i] = v.now + moved
    # an old block has no covariance to what the mesh learned since
    t["reported_var_ns2"][i] = np.where(v.alone | (v.age_s > _FRESH_S), 0.0, left)


def _averaged(excess: Float64s, total: Float64s, soft: Float64s) -> tuple[Float64s, Float64s]:
    """How far smallest delays move the mean of what they measure, and how much variance they take away.

    For sessions at the floor (`stamp_noise`), where delays without a queue are normal. One far above met a queue, and
    says nothing.
    """
    both = total + soft
    gain = np.where(excess < _QUEUED * np.sqrt(both), total / both, 0.0)
    return gain * excess, gain * total


def _narrowed(v: Prior, min_delay_ns: Float64s) -> tuple[Float64s, Float64s]:
    """Mean and variance of the prior, brought within the round trip where it is far wider.

    Half the difference of both directions is off by half the round trip at most. Two bounds one after the other leave a
    prior of many round trips off to the side of the second, each session's to the same one: by a deviation of its own,
    but by four of the mean of sixteen sessions, whose clocks then seemed to run 12 ppm apart.
    """
    half_ns = 0.5 * (min_delay_ns[FWD] + min_delay_ns[REV])
    square = np.maximum(half_ns * half_ns, LEAST_SPREAD_NS2)
    wide = np.flatnonzero(np.isfinite(half_ns) & (v.variance > square))
    if not wide.size:
        return v.mean, v.variance
    mean, var = v.mean.copy(), v.variance.copy()
    fwd, rev = min_delay_ns.take(wide, axis=1)
    share = var[wide] / (var[wide] + square[wide])
    mean[wide] += share * (0.5 * (fwd - rev) - mean[wide])
    var[wide] *= 1.0 - share
    return mean, var


def learn_means(t: Table, b: Blocks, use: Int64s, v: Prior, c: SyncConfig) -> None:
    """Measurement update of quiet sessions with the means of blocks `use`, unless a mean shows a queue.

    Half the difference of the two means measures the clock difference; its variance is that of the means.
    """
    i = b.session[use]
    first = t["moment1_ns"].take(i, axis=1)
    n = np.maximum(b.n.take(use, axis=1), 1.0)
    spread = np.maximum(t["moment2_ns2"].take(i, axis=1) - first**2, c.jitter_ns**2) / n
    mean = b.sums[0].take(use, axis=1) / n
    clean = (mean - first < c.clean_sigmas * np.sqrt(spread + v.variance[use])).all(axis=0)
    precision = np.where(clean, 4.0 / spread.sum(axis=0), 0.0)
    value = 0.5 * (mean[FWD] - mean[REV])
    update(t, i, v.age_s[use], v.line[use], precision * value, precision)
    t["reported_var_ns2"][i] = 0.0


def excess(min_delay_ns: Float64s, v: Prior, base_delay_ns: Float64s) -> Float64s:
    """By how much each direction's smallest delay lies above its bound; (2, blocks), ns."""
    return np.stack([min_delay_ns[FWD] - v.mean - base_delay_ns, min_delay_ns[REV] + v.mean - base_delay_ns])


def sigma(v: Prior, t: Table, i: Int64s) -> Float64s:
    """Standard deviation of that excess, (2, blocks), ns."""
    var = v.variance + t["base_delay_var_ns2"][i] + v.soft
    twice = 2.0 * np.clip(t["base_delay_cov_ns2"][i], -0.5 * var, 0.5 * var)
    return np.sqrt(np.maximum(np.stack([var + twice, var - twice]), 1e-6))


class Gated(NamedTuple):
    """What the innovation gate makes of some blocks; all (blocks,)."""

    broken: Bools
    """Far below the prior: not to be learned from."""
    breach_ns: Float64s
    """By how much broken blocks lie below it; 0: not broken."""
    surprise_ns: Float64s
    """By how much others do; 0: not by more than queues and noise explain."""


def gate(e: Float64s, s: Float64s, scale: Float64s, c: SyncConfig, at_floor: Bools | bool = False) -> Gated:
    """Innovation gate.

    A small surprise widens the estimate at once; a large one may be a wrong stamp, a shorter path or a step, for which
    `breaks` waits for more blocks. Sessions `at_floor` measure with noise on both sides, which alone passes four
    standard deviations in some minutes, and are surprised later.
    """
    short = np.where(np.isfinite(e), -e, 0.0)
    beyond = short > c.breach_sigmas * s
    broken: Bools = np.any(beyond & (short > c.breach_scales * scale), axis=0)
    doubt = c.doubt_sigmas * np.where(at_floor, _NOISY, 1.0)
    surprise_ns = np.where(broken, 0.0, np.where(short > doubt * s, short, 0.0).max(axis=0))
    return Gated(broken, np.where(broken, short.max(axis=0), 0.0), surprise_ns)
