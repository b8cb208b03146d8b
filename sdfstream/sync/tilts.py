r"""How much each direction of a session queues, and the tilts that `edge_filter` takes from that.

The *scale* :math:`\nu` of a direction is the median of its blocks' smallest excess over log 2, a running one: no law is
assumed. Were excess exponential, its tilt would be :math:`1/\nu`.

**Shape.** What matters is how often packets come near the floor, not how far off most of them stay. Of a path of
several busy hops fewer come near than an exponential law of the same median has: there :math:`1/\nu` is too steep, and
pulled base delays hundreds of ns above the floor, with a variance of a tenth of that. By mean and variance of its
delays a direction queues like a gamma law of shape k = mean²/variance: an exponential law has one, three hops at 90 %
load 2.5, a path that is mostly idle less. Near the floor such a law grows by :math:`x^k`, so the scale that the
smallest fifth of the excesses shows is

.. math:: \nu' = \nu\,\left(\frac{\log 2}{-\log 0.8}\right)^{1 - 1/k}.

The smaller shape of the two directions counts for both. Mean and variance are those above the lowest delays of late
(`breaks.watch_floors`), not above the base delay, which may still be far off. A shape near one is taken for one, so
that an exponential law is as it is; less than one changes nothing, as a median that is too sharp already stops at the
stamps' noise.

**What is no queueing.** Of an idle path delays spread by their stamps' noise alone, and its first base delay is µs
below the floor: a mean far above D, hardly any variance, and so a shape of thousands. Gentle tilts left such base
delays below the floor for seconds, and bounds µs wide (law A, 16/s). So by how much the lowest delays lie above D, as
they do until D has found the floor, counts as spread, and what noise makes of the mean is taken off it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync.blocks import moments_of

_LOG_2: Final = float(np.log(2.0))
_GAIN: Final = 0.08
"""Step of the running median, in e-foldings per block."""
_LEAST_SCALE: Final = 1.0
"""ns."""
_FIFTH: Final = float(np.log(_LOG_2 / -np.log(0.8)))
"""Log of how much nearer to the floor an exponential law has its fifth than its median."""
_ALIKE: Final = 0.5
"""A log of the shape up to here is no evidence: what chance makes of an exponential law by a few hundred delays."""
_LAG: Final = 2.0
"""So many times the lowest excess is how far off a base delay may be; it moved since that excess was seen."""
_LOWEST: Final = 3.3
"""By so many standard deviations noise makes the lowest of a thousand delays too low."""
_ENOUGH: Final = 3.0
"""Blocks of moments that tell a shape. Busy hops want it soon: with five seconds half of what it gains is lost, since
the clocks' wander is learned meanwhile from a base delay that is pulled too far."""


def tilts(t: Table, i: Int64s, excess: Float64s, soft: Float64s, known: Float64s) -> Float64s:
    """Learn the scales of the sessions `i` from one block each; the tilts, (2, blocks), 0 where nothing came.

    Parameters
    ----------
    excess : (2, blocks) float64, ns
        By how much each direction's smallest delay lies above its bound; +inf: none.
    soft, known : (blocks,) float64, ns²
        Variance of the bounds; of what they bound. A tilt never pulls further than one standard deviation of what is
        known: an estimate must not run after its own idea of the scale. A soft bound pulls less; after a step bounds
        are soft for some ticks.
    """
    t["blocks"][i] += 1.0
    came, gain = excess < np.inf, np.maximum(_GAIN, 1.0 / (t["blocks"][i] + 1.0))
    scale = t["excess_scale_ns"].take(i, axis=1)
    followed = scale * np.exp(np.where(excess > _LOG_2 * scale, gain, -gain))
    scale = np.clip(np.where(came, followed, scale), _LEAST_SCALE, 1e9)
    t["excess_scale_ns"][:, i] = scale
    tilt = np.minimum(1.0 / np.maximum(scale, np.sqrt(soft)), 1.0 / np.sqrt(known + soft))
    return np.where(came, tilt * np.exp(-_FIFTH * (1.0 - 1.0 / shape(t, i, soft))), 0.0)


def shape(t: Table, i: Int64s, soft: Float64s) -> Float64s:
    """Shape of the gamma law by which both directions queue, where that is well above one; else one. (blocks,).

    The smaller of the two: of few delays chance makes one direction's large. `soft` (blocks,): variance of the bounds,
    ns².
    """
    mean = t["moment1_ns"].take(i, axis=1)
    variance = np.maximum(t["moment2_ns2"].take(i, axis=1) - mean * mean, _LEAST_SCALE)
    lowest = np.minimum(t["excess_min_ns"].take(i, axis=1), t["excess_min_before_ns"].take(i, axis=1))
    lag = np.maximum(lowest, 0.0)
    above = mean + (t["centre_ns"][i] - t["base_delay_ns"][i]) - lag - _LOWEST * np.sqrt(soft)
    log_shape = 2.0 * np.log(np.maximum(above, _LEAST_SCALE)) - np.log(variance + (_LAG * lag) ** 2)
    log_shape = np.where(moments_of(t["moment_blocks"][i]) < _ENOUGH, 0.0, np.maximum(log_shape, 0.0))
    log_shape = log_shape.min(axis=0)
    square = np.square(log_shape / _ALIKE)
    result: Float64s = np.exp(log_shape - log_shape / (1.0 + square * square))
    return result
