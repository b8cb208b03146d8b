r"""Noise of each session's stamps, learned from round trips near the floor.

Half the sum of both directions' smallest delays of a block, :math:`x = (u + l) / 2`, is free of the clocks. Where
neither met a queue it is the base delay and noise, whose variance is half that of one direction's. Its mean and
variance are taken of those x within `_GATE` standard deviations of the mean: a gate that begins wide and closes in upon
the floor; what queued lies beyond it.

A session is *at the floor* while

- the gate holds a good part of all blocks: packets without a queue make a floor,
- the x below the mean reach as far down as noise, which is symmetric, makes them. Short queues spread as noise does,
  but end at the floor: of an exponential queue each way (x: gamma law of shape 2) next to none lies 1.5 deviations
  below the mean, of noise one in fifteen,
- and the noise is more than the configured one, and the gate has closed in below `quiet_ns`.

Then its smallest delays are averaged (`edge_filter.learn_minima`), with the noise found. Elsewhere noise is the
configured one and smallest delays are bounds: where hardly a packet meets no queue, noise cannot be seen and does not
matter.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import Float64s, Int64s
from sdfstream.sync.blocks import FWD, REV
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.edge_filter import YOUNG_BLOCKS

_START_NS2: Final = 1250.0
"""Variance of x at first: a gate of ±100 ns."""
_GATE: Final = 3.0
_LEAST_NS: Final = 0.5
"""Noise at least: stamps of whole nanoseconds make 0.41."""
_LEAST_NS2: Final = 0.02
"""Variance of x at least."""
_LOST_SHARE: Final = 0.05
"""With fewer blocks in the gate there is no floor, or it has moved: begin anew at the base delay."""
_SHARE: Final = (0.3, 0.2)
"""Share of the blocks in the gate, at least: to become, and to stay at the floor."""
_DEEP: Final = 1.5
_DEEP_SHARE: Final = (0.035, 0.022)
"""Share of them more than `_DEEP` standard deviations below the mean, likewise; at first more by a standard deviation
of itself. Of sessions with noise 1 % are not at the floor for that, with exponential queues of 300 ns 2 % are."""
_LOUD: Final = (1.7, 1.4)
"""Noise at least, in `jitter_ns`. Of stamps no worse than configured the bounds are right as they are; averaged with
less noise they missed one row in 600 (`jitter-2`)."""
_WIDEST: Final = (0.7, 1.0)
"""Noise at most, in `quiet_ns`."""
_PER_BLOCK: Final = 1.0 / 12.0
_MEMORY: Final = (8.0, 128.0)
"""Blocks: at first; at most. In between a twelfth of all so far, so that the wide gate is soon forgotten."""
_MEMORY_DEEP: Final = (16.0, 256.0)
_FOLLOWS: Final = 0.05
"""Share of the way that the noise in use goes to the one found, per block."""


def noise_ns2(t: Table, i: Int64s, c: SyncConfig) -> Float64s:
    """Variance of the stamps' noise in a smallest delay of one direction, (sessions,) ns²."""
    result: Float64s = c.jitter_ns**2 * np.exp(2.0 * t["stamp_noise_log"][i])
    return result


def learn(t: Table, i: Int64s, min_delay_ns: Float64s, c: SyncConfig) -> None:
    """Learn from one block each of the sessions `i`; `min_delay_ns` (2, blocks): smallest delays, +inf: none.

    A session that becomes or ceases to be at the floor is less sure of its base delay: their mean, or least.
    """
    x = 0.5 * (min_delay_ns[FWD] + min_delay_ns[REV])
    lost = t["floor_share"][i] < _LOST_SHARE
    off_ns = x - np.where(lost, t["base_delay_ns"][i], t["floor_ns"][i])
    square, var = off_ns * off_ns, np.where(lost, _START_NS2, t["floor_var_ns2"][i])
    inside = square < _GATE * _GATE * np.maximum(var, 0.5 * _LEAST_NS * _LEAST_NS)
    use = np.flatnonzero((inside | ~lost) & np.isfinite(x) & (t["blocks"][i] >= YOUNG_BLOCKS))
    if not use.size:
        return
    new = i[use[lost[use]]]
    t["floor_blocks"][new], t["floor_ns"][new] = 0.0, t["base_delay_ns"][new]
    i, inside, off_ns, square, var = i[use], inside[use], off_ns[use], square[use], var[use]
    t["floor_blocks"][i] += 1.0
    so_far = t["floor_blocks"][i] * _PER_BLOCK
    gain, deep_gain = 1.0 / np.clip(so_far, *_MEMORY), 1.0 / np.clip(2.0 * so_far, *_MEMORY_DEEP)
    t["floor_share"][i] += gain * (inside - t["floor_share"][i])
    gain = np.where(inside, gain, 0.0)
    deep = (off_ns < 0.0) & (square > _DEEP * _DEEP * var)
    t["floor_deep_share"][i] += np.where(inside, deep_gain * (deep - t["floor_deep_share"][i]), 0.0)
    t["floor_ns"][i] += gain * off_ns
    t["floor_var_ns2"][i] = np.clip(var + gain * (square - var), _LEAST_NS2, c.quiet_ns**2)
    _decide(t, i, deep_gain, c)
    gone = i[t["floor_share"][i] < _LOST_SHARE]
    for name in ("floor_share", "floor_deep_share", "stamp_noise_log"):
        t[name][gone] = 0.0


def _decide(t: Table, i: Int64s, deep_gain: Float64s, c: SyncConfig) -> None:
    """Whether the sessions are at the floor, and the noise in use."""
    was, var = t["at_floor"][i], t["floor_var_ns2"][i]
    noise = np.sqrt(np.maximum(2.0 * var, _LEAST_NS * _LEAST_NS))
    enough = _DEEP_SHARE[0] + np.sqrt(_DEEP_SHARE[0] * deep_gain)
    symmetric = t["floor_deep_share"][i] > np.where(was, _DEEP_SHARE[1], enough)
    narrow = (noise > np.where(was, *_LOUD[::-1]) * c.jitter_ns) & (noise < np.where(was, *_WIDEST[::-1]) * c.quiet_ns)
    now = (t["floor_share"][i] > np.where(was, *_SHARE[::-1])) & symmetric & narrow
    wanted = np.where(now, np.log(noise / c.jitter_ns), 0.0)
    t["stamp_noise_log"][i] += _FOLLOWS * (wanted - t["stamp_noise_log"][i])
    changed = i[now != was]
    t["at_floor"][i] = now
    if changed.size:
        up_ns = t["floor_ns"][changed] - t["base_delay_ns"][changed]
        t["base_delay_ns"][changed] += np.where(t["at_floor"][changed], up_ns, 0.0)
        t["base_delay_var_ns2"][changed] += t["floor_var_ns2"][changed]
