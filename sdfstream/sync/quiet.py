"""Quiet sessions: small symmetric noise, where the mean of a block says more than its smallest delay.

A wall is the better measurement when most packets meet queues, the mean when hardly any does and what is left is the
stamps' own noise. A session is quiet while its delays are not lop-sided and their deviation is small.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.records.units import Bools, Float64s, Int64s
from sdfstream.sync import sites
from sdfstream.sync.blocks import Blocks
from sdfstream.sync.config import SyncConfig
from sdfstream.sync.table import Table
from sdfstream.sync.walls import FWD, REV, View

_MEMORY_BLOCKS: Final = 80.0
_CALM_BLOCKS: Final = 24.0
_LAST_RESTART: Final = 64.0


def narrow(t: Table, c: SyncConfig) -> Bools:
    """(sessions,) whether their delays might be quiet, so that the third moment is worth its cost."""
    variance = (t["second"] - t["first"] ** 2).max(axis=0)
    result: Bools = (t["moments"] < _CALM_BLOCKS) | (variance < (4.0 * c.quiet_ns) ** 2)
    return result


def learn_moments(t: Table, b: Blocks, c: SyncConfig) -> None:
    """Moments of the delays about ``about`` (a level of the session's that stands still), and whether it is quiet."""
    i = b.session
    t["moments"][i] += 1.0
    age = t["moments"][i]
    # moments begin afresh at the 1st, 2nd, 4th, … 64th block, so that the wild first ones are forgotten
    since = age - np.exp2(np.floor(np.log2(np.clip(age, 1.0, _LAST_RESTART)))) + 1.0
    gain = np.where(b.n > 0, np.maximum(1.0 / since, 1.0 / _MEMORY_BLOCKS), 0.0)
    count = np.maximum(b.n, 1.0)
    for power, name in enumerate(("first", "second", "third")):
        old = t[name].take(i, axis=1)
        fresh = old + gain * (b.sums[power] / count - old)
        for lane in (FWD, REV):  # two writes of one lane each cost a fifth of one write of both
            t[name][lane][i] = fresh[lane]
    _move(t, i[since == 1.0])
    _calm(t, i, since, c)


def _move(t: Table, i: Int64s) -> None:
    """Moments about the present level, when they begin afresh."""
    by = t["level"][i] - t["about"][i]
    first, second = t["first"].take(i, axis=1), t["second"].take(i, axis=1)
    t["third"][:, i] += -3.0 * by * second + 3.0 * by**2 * first - by**3
    t["second"][:, i] += -2.0 * by * first + by**2
    t["first"][:, i] -= by
    t["about"][i] = t["level"][i]


def _calm(t: Table, i: Int64s, since: Float64s, c: SyncConfig) -> None:
    """Quiet: skewness below ½ in both directions (exponential: 2; normal: 0 ± 0.2 for 128 delays), deviation below
    `quiet_ns`; no longer, when skewness passes 1 or the deviation doubles.
    """
    first = t["first"].take(i, axis=1)
    variance = np.maximum(t["second"].take(i, axis=1) - first**2, c.jitter_ns**2)
    third = t["third"].take(i, axis=1) - 3.0 * first * t["second"][:, i] + 2.0 * first**3
    skewness = (third / variance**1.5).max(axis=0)
    widest = variance.max(axis=0)
    stays = (skewness < 1.0) & (widest < (2.0 * c.quiet_ns) ** 2)
    becomes = (skewness < 0.5) & (widest < c.quiet_ns**2)
    enough = since >= _CALM_BLOCKS
    t["quiet"][i] = np.where(enough, np.where(t["quiet"][i], stays, becomes), t["quiet"][i])


def learn(t: Table, b: Blocks, use: Int64s, v: View, c: SyncConfig) -> None:
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
    sites.learn(t, i, v.age_s[use], v.line[use], precision * value, precision)
    t["told_var"][i] = 0.0
