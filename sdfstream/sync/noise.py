"""How far above its floor a session's packets lie: learned from the blocks themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table

_MEMORY_BLOCKS = 80.0
_YOUNG_BLOCKS = 50.0
_CALM_BLOCKS = 24.0
_LAST_RESTART = 64.0
_ALIKE = 1.6
"""Two directions' excesses within this ratio are taken for equal; 80 exponential samples scatter by 1.2."""


class Joint(NamedTuple):
    """Normal law of (s, D) per session: means, variances, covariance; ns and ns²."""

    s: Float64s
    d: Float64s
    ss: Float64s
    dd: Float64s
    sd: Float64s


class Noise(NamedTuple):
    """What a packet's delay adds to its level, per direction (lane) and session."""

    quiet: Bools
    """(sessions,) small, symmetric noise: mean delays are the better measurement."""
    excess: Float64s
    """(2, sessions) ns: mean excess over the floor."""
    variance: Float64s
    """(2, sessions) ns² of a single delay."""


def _since_restart(age: Float64s) -> Float64s:
    """Blocks since the moments were begun afresh: at 1, 2, 4, … 64, so that the wild first blocks are forgotten."""
    begun = np.exp2(np.floor(np.log2(np.clip(age, 1.0, _LAST_RESTART))))
    result: Float64s = age - begun + 1.0
    return result


def noise_of(table: Table, i: Int64s, config: SyncConfig) -> Noise:
    """The noise of sessions `i`, as learned so far."""
    variance = table["second"][:, i] - table["first"][:, i] ** 2
    return Noise(table["quiet"][i], _expected_excess(table, i, config), np.maximum(variance, config.jitter_ns**2))


def calm(table: Table, i: Int64s, p: Joint, config: SyncConfig) -> Joint:
    """Decide anew which sessions are quiet; where that changes, D changes its meaning between floor and mean.

    Quiet: in both directions skewness below ½ (exponential: 2; normal: 0 ± 0.2 for 128 delays) and deviation below
    `quiet_ns`; no longer, when skewness passes 1 or the deviation doubles.
    """
    first = table["first"][:, i]
    variance = np.maximum(table["second"][:, i] - first**2, config.jitter_ns**2)
    third = table["third"][:, i] - 3.0 * first * table["second"][:, i] + 2.0 * first**3
    skewness = (third / variance**1.5).max(axis=0)
    widest = variance.max(axis=0)
    was = table["quiet"][i]
    grown = _since_restart(table["blocks"][i]) >= _CALM_BLOCKS
    stays = (skewness < 1.0) & (widest < (2.0 * config.quiet_ns) ** 2)
    becomes = (skewness < 0.5) & (widest < config.quiet_ns**2) & grown
    now = np.where(was, stays, becomes)
    changed = now != was
    if not changed.any():
        return p
    table["quiet"][i] = now
    lift = np.where(now, first.mean(axis=0), -2.0 * np.sqrt(widest))
    lift = np.where(changed, lift, 0.0)
    table["first"][:, i] -= lift
    table["second"][:, i] -= lift * (2.0 * table["first"][:, i] + lift)
    table["third"][:, i] -= lift * (3.0 * table["second"][:, i] + lift * (3.0 * table["first"][:, i] + lift))
    doubt = np.where(changed, widest + (0.5 * (first[0] - first[1])) ** 2, 0.0)
    return p._replace(d=p.d + lift, dd=p.dd + doubt)


def _expected_excess(table: Table, i: Int64s, config: SyncConfig) -> Float64s:
    """Mean excess of one packet over its floor, ns, (2, sessions), for the likelihood.

    Per direction the excess over the level, held between 0.7 and 3 times the level-free roughness (a larger ratio
    means a level that is too low, or a standing queue); then both directions get their mean, as long as they are much
    alike or the session is young. Only the *difference* of the two directions' tilts pushes the clock difference, so
    two guesses of one figure must not differ by their noise; and a level that is too low makes its own excess large,
    which weakens just the tilt that would raise it. A direction clearly above the other has a queue standing in it and
    tilts less. While a session is young its scale is doubted.
    """
    age = table["blocks"][i]
    rough = table["rough"][:, i]
    own = np.where(age >= 2.0, np.clip(table["excess"][:, i], 0.7 * rough, 3.0 * rough), table["excess"][:, i])
    own = np.maximum(own, 0.25 * config.jitter_ns)
    mean = 0.5 * (own[0] + own[1])
    alike = (age < _YOUNG_BLOCKS) | (own.max(axis=0) < _ALIKE * own.min(axis=0))
    result: Float64s = (1.0 + 3.0 / np.maximum(age, 1.0)) * np.where(alike, mean, own)
    return result


def learn_noise(
    table: Table, blocks: Blocks, level_fwd: Float64s, level_rev: Float64s, fit: Bools, config: SyncConfig
) -> None:
    """Mean excess of a single packet as the minima show it, in two ways, each with a memory of 80 blocks.

    `excess`: minimum − level, times n (for exponential excess, E[min of n] = mean / n). `rough`: difference of two
    successive minima, times n, which has the same mean but needs no level; it keeps a young session, whose level
    fits its few minima too well, from trusting them. `fit` (2, blocks): blocks to learn from.
    """
    i = blocks.session
    table["blocks"][i] += 1.0
    age = table["blocks"][i]
    since = _since_restart(age)
    for lane, level in enumerate((level_fwd, level_rev)):
        n = blocks.n[lane]
        for power, name in enumerate(("first", "second", "third")):
            old, new = table[name][lane, i], blocks.sums[power, lane] / np.maximum(n, 1.0)
            gain = np.where(n > 0, np.maximum(1.0 / since, 1.0 / _MEMORY_BLOCKS), 0.0)
            table[name][lane, i] = old + gain * (new - old)
        use = (n > 0) & fit[lane]
        low = np.where(use, blocks.minimum[lane], 0.0)
        seen = np.maximum(low - level, 0.25 * config.jitter_ns) * n
        old = table["excess"][lane, i]
        table["excess"][lane, i] = np.where(use, old + np.maximum(1.0 / age, 1.0 / _MEMORY_BLOCKS) * (seen - old), old)
        old = table["rough"][lane, i]
        step = np.abs(low - table["last"][lane, i]) * n
        step = np.minimum(step, np.where(age > 5.0, 10.0 * old, np.inf))
        gain = np.maximum(1.0 / np.maximum(age - 1.0, 1.0), 1.0 / _MEMORY_BLOCKS)
        table["rough"][lane, i] = np.where(use & ~np.isnan(step), old + gain * (step - old), old)
        table["last"][lane, i] = np.where(use, low, table["last"][lane, i])
