"""How far above its floor a session's packets lie: learned from the blocks themselves."""

from __future__ import annotations

import numpy as np

from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table

_MEMORY_BLOCKS = 80.0
_YOUNG_BLOCKS = 50.0
_ALIKE = 1.6
"""Two directions' excesses within this ratio are taken for equal; 80 exponential samples scatter by 1.2."""


def expected_excess(table: Table, i: Int64s) -> Float64s:
    """Mean excess of one packet over its floor, ns, (2, sessions), for the likelihood.

    Per direction the larger of the excess over the level and the level-free roughness; then both directions get their
    mean, as long as they are much alike or the session is young. Only the *difference* of the two directions' tilts
    pushes the clock difference, so two guesses of one figure must not differ by their noise; and a level that is too
    low makes its own excess large, which weakens just the tilt that would raise it. A direction clearly above the other
    has a queue standing in it and tilts less. While a session is young its scale is doubted.
    """
    age = table["blocks"][i]
    own = np.maximum(table["excess"][:, i], 0.7 * table["rough"][:, i])
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
    for lane, level in enumerate((level_fwd, level_rev)):
        n = blocks.n[lane]
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
