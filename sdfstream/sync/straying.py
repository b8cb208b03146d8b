"""What the variance of each clock is multiplied by in its published bound: how far predictions strayed, beyond chance.

Per horizon (`wander.HORIZONS`) the squares of prediction errors over their expected values make a ratio. In a steady
world it is about one or less, but the longest are few: in a minute two stretches of 32 s, whose ratio is above two by
chance for a tenth of all clocks, and of five such ratios the worst is above one nearly always.

- *Chance.* A ratio q of n independent stretches has, against the ratio one, the log likelihood n/2 (q − 1 − log q).
  The best of all horizons says how likely it is that the clock strays; by that the worst ratio counts.
- *Few clocks.* Both clocks of a pair share their errors, and nobody else can tell. There only the longest horizon
  waits for evidence, all others count as they are; in a large mesh only the shortest, of most stretches, does.
- *Large meshes.* What is left where none strays is what all clocks of a large component show together: one that is
  steadier than its filters think has narrower bounds, down to a limit. Of fewer clocks a margin is left.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric.group import sums
from sdfstream.records.units import Float64s, Int64s

LARGE: Final = 16
"""So many clocks of a component are a large mesh. With fewer, drifts of many (`drift`) begin inside what the bound
leaves room for by chance: of eight warming clocks fewer rows would be covered than are."""
_FEW: Final = 4
"""Fewer share their errors."""
_CERTAIN: Final = (4, 3, 1)
"""So many of the shortest horizons count as they are: of few clocks, of more, of a large mesh. With three of few, a
pair whose frequency wanders by 1e-8/√s was outside its bound for a second, of 16 s before which one stretch strayed."""
_ODDS: Final = 4.0
"""Logarithm of the odds against a straying clock."""
_MISTRUST: Final = 1.5
"""Where predictions stray the model is wrong, and by more at times than on average."""
_MARGIN: Final = (1.05, 1.5)
"""What the factor is at least: of few clocks, and of those that are neither few nor a large mesh."""
_POOLED: Final = 16.0
"""A horizon counts for a component once it had so many stretches."""
_MOST_POOLED: Final = 3.0
"""One wild clock does not widen all."""
START: Final = 2.0
"""Stretches that a new clock's ratio of one stands for."""


def bound_factor(error: Float64s, expected: Float64s, square: Float64s, label: Int64s, least: float) -> Float64s:
    """Each clock's factor, (clocks,).

    Parameters
    ----------
    error, expected, square : (horizons, clocks) float64
        Sums over the stretches, with forgetting: of squared errors, of their expected values and of these values'
        squares. Any unit.
    label : (clocks,) int64
        Component of each clock.
    least : float
        The factor at least.
    """
    ratio = error / expected
    stretches = expected * expected / square
    size = np.bincount(label, minlength=label.size)[label]
    few, large = size < _FEW, size >= LARGE
    usual = np.where(few, *_MARGIN)
    if large.any():
        usual = np.where(large, _shown_together(ratio, stretches, label), usual)
    strayed = np.maximum(ratio, 1.0)
    evidence = (0.5 * stretches * (strayed - 1.0 - np.log(strayed))).max(axis=0)
    likely = 1.0 / (1.0 + np.exp(np.minimum(_ODDS - evidence, 50.0)))
    shortest = np.maximum.accumulate(ratio, axis=0)
    certain = np.where(few, *(shortest[n - 1] for n in _CERTAIN[:2]))
    certain = np.where(large, shortest[_CERTAIN[2] - 1], certain)
    worst = np.maximum(_mistrusted(shortest[-1]), usual)
    result: Float64s = np.maximum(usual + likely * (worst - usual), np.maximum(_mistrusted(certain), least))
    return result


def _mistrusted(ratio: Float64s) -> Float64s:
    result: Float64s = np.where(ratio > 1.0, ratio**_MISTRUST, ratio)
    return result


def _shown_together(ratio: Float64s, stretches: Float64s, label: Int64s) -> Float64s:
    """(clocks,) the worst mean ratio of each component's well-tested horizons; 1 at most, and where there is none."""
    found = np.zeros(label.size)
    for q, n in zip(np.minimum(ratio, _MOST_POOLED), stretches, strict=True):
        total = sums(label, n, label.size)
        seen = sums(label, np.maximum(n - START, 0.0), label.size)
        mean = sums(label, q * n, label.size) / np.maximum(total, 1e-9)
        np.maximum(found, np.where(seen >= _POOLED, mean, 0.0), out=found)
    shown: Float64s = np.where(found > 0.0, np.minimum(found, 1.0), 1.0)[label]
    return shown
