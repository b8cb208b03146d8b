r"""What a packet's delay adds to its floor, per session and direction: learned from blocks and windows themselves.

Two figures, neither of which needs to know a law of queueing:

- *excess*: how far a window's floor lies above the path's on average, for one packet a window. Two neighbouring
  stretches of n packets each have floors that differ by :math:`|A - B|`; for exponential excess of mean :math:`\mu`
  that has the mean :math:`\mu / n`, which is also each floor's standard deviation. So the session keeps the mean of
  :math:`n |A - B|`. It is measured at the length of window in use, so that a floor which does not improve with n as the
  exponential's would shows itself there.
- *quiet*: small and symmetric noise, where means are the better measurement than floors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table

_MEMORY_BLOCKS = 80.0
_CALM_BLOCKS = 24.0
_LAST_RESTART = 64.0
_PAIRS = 24.0
"""Pairs of stretches in the memory of the excess."""
_LEAP = 4.0
"""A difference of two floors counts at most this many times the mean so far: a burst is not the traffic."""


class Quiet(NamedTuple):
    """Block means of quiet sessions."""

    use: Bools
    """(blocks,) sessions to be measured by their means."""
    clean: Bools
    """(blocks,) of those, blocks without a queue."""
    mean: Float64s
    """(2, blocks) mean delay above the session's remembered margin, ns."""
    variance: Float64s
    """(2, blocks) of that mean, ns²."""


def columns() -> tuple[dict[str, tuple[type[np.float64] | type[np.bool_], float | bool]], tuple[str, ...]]:
    """Columns of the session table that belong here, and which of them have a lane per direction."""
    wide = ("excess", "first", "second", "third", "rate")
    plain = {name: (np.float64, 0.0) for name in (*wide, "gap", "moments", "pairs")}
    return {**plain, "quiet": (np.bool_, False)}, wide


def learn_blocks(table: Table, b: Blocks, blocks_ago: Float64s, c: SyncConfig) -> None:
    """Packets per tick, moments of the delays about the session's level, and whether the session is quiet.

    `blocks_ago` (blocks,): ticks since the session's previous block.
    """
    i = b.session
    table["moments"][i] += 1.0
    age = table["moments"][i]
    gain = np.maximum(1.0 / age, 1.0 / _MEMORY_BLOCKS)
    table["gap"][i] += gain * (np.minimum(blocks_ago, 100.0) - table["gap"][i])
    table["rate"][:, i] += gain * (b.n - table["rate"][:, i])
    # moments begin afresh at the 1st, 2nd, 4th, … 64th block, so that the wild first ones are forgotten
    since = age - np.exp2(np.floor(np.log2(np.clip(age, 1.0, _LAST_RESTART)))) + 1.0
    gain = np.maximum(1.0 / since, 1.0 / _MEMORY_BLOCKS)
    count = np.maximum(b.n, 1.0)
    for power, name in enumerate(("first", "second", "third")):
        old = table[name][:, i]
        table[name][:, i] = old + np.where(b.n > 0, gain, 0.0) * (b.sums[power] / count - old)
    _calm(table, i, since, c)


def _calm(table: Table, i: Int64s, since: Float64s, c: SyncConfig) -> None:
    """Quiet: skewness below ½ in both directions (exponential: 2; normal: 0 ± 0.2 for 128 delays), deviation below
    `quiet_ns`; no longer, when skewness passes 1 or the deviation doubles.
    """
    first = table["first"][:, i]
    variance = np.maximum(table["second"][:, i] - first**2, c.jitter_ns**2)
    third = table["third"][:, i] - 3.0 * first * table["second"][:, i] + 2.0 * first**3
    skewness = (third / variance**1.5).max(axis=0)
    widest = variance.max(axis=0)
    stays = (skewness < 1.0) & (widest < (2.0 * c.quiet_ns) ** 2)
    becomes = (skewness < 0.5) & (widest < c.quiet_ns**2) & (since >= _CALM_BLOCKS)
    table["quiet"][i] = np.where(table["quiet"][i], stays, becomes)


def quiet_means(table: Table, b: Blocks, doubt: Float64s, c: SyncConfig) -> Quiet:
    """Means of the blocks of quiet sessions; one whose mean lies too high in either direction met a queue.

    `doubt` (blocks,) ns²: variance of the predicted clock difference.
    """
    i = b.session
    use = table["quiet"][i] & (b.n > 0).all(axis=0)
    first = table["first"][:, i]
    spread = np.maximum(table["second"][:, i] - first**2, c.jitter_ns**2) / np.maximum(b.n, 1.0)
    mean = b.sums[0] / np.maximum(b.n, 1.0)
    clean = (mean - first < c.clean_sigmas * np.sqrt(spread + doubt)).all(axis=0)
    return Quiet(use, clean, mean, spread)


def floor_sigma(table: Table, i: Int64s, ticks: Float64s, c: SyncConfig) -> Float64s:
    """Standard deviation, and mean excess, of the floors of windows so many ticks long: (2, *ticks.shape)."""
    packets = table["rate"][:, i] / np.maximum(table["gap"][i], 1.0)
    if ticks.ndim == 2:
        packets = packets[:, None, :]
        excess = table["excess"][:, None, i]
    else:
        excess = table["excess"][:, i]
    result: Float64s = np.maximum(excess / np.maximum(packets * ticks, 1.0), c.jitter_ns)
    return result


def guess(table: Table, i: Int64s, level: Float64s) -> None:
    """A session whose excess nobody knows: a quarter of the path's delay (`level`, ns)."""
    fresh = table["excess"][:, i] == 0.0
    table["excess"][:, i] = np.where(fresh, np.maximum(0.25 * np.abs(level), 1.0), table["excess"][:, i])


def learn_floors(
    table: Table, i: Int64s, newer: Float64s, older: Float64s, ticks: Float64s, every: Float64s, bend: Float64s
) -> None:
    """Take in the floors of two neighbouring stretches `ticks` long each, (2, sessions); looked at `every` ticks.

    Stretches overlap from look to look, so a look counts as `every` / `ticks` of a pair. `bend` (sessions,): what an
    unknown skew may have added to one direction and taken from the other, ns. Where that matters, both get the
    figure from their sum, which is free of it (1.5 times the excess on average for two exponential directions).
    """
    both = (np.isfinite(newer) & np.isfinite(older)).all(axis=0)
    gap = np.where(both, newer, 0.0) - np.where(both, older, 0.0)
    packets = np.maximum(table["rate"][:, i] / np.maximum(table["gap"][i], 1.0) * ticks, 1.0)
    old = table["excess"][:, i]
    straight = bend < 0.5 * (old / packets).min(axis=0)
    seen = np.where(straight, np.abs(gap), np.abs(gap.sum(axis=0)) / 1.5) * packets
    share = np.minimum(every / ticks, 1.0)
    table["pairs"][i] += np.where(both, share, 0.0)
    gain = share * np.maximum(1.0 / np.maximum(table["pairs"][i], 1.0), 1.0 / _PAIRS)
    capped = np.minimum(seen, _LEAP * old)
    table["excess"][:, i] = np.where(both, old + gain * (capped - old), old)
