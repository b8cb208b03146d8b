"""Ways that became longer or shorter, as by a reroute: an excess that stays and scatters no more than a quiet path.

A queue varies with what fills it, so its delay scatters by some tenths of itself; that of a cable does not. Only small
excesses are taken for a way (`_MOST_NS`, ten kilometres of cable): a buffer that is always full is steady too, but
larger.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from sdfstream.numeric.table import Table
from sdfstream.records.units import Float64s, Int64s

_ALPHA: Final = 0.05
"""Of mean and variance of the excess, for each window (0.1 s): two seconds."""
MEAN_OF_NOISE: Final = (_ALPHA / (2.0 - _ALPHA)) ** 0.5
"""Standard deviation of that mean, in those of a window, where nothing but noise is in it."""
_LASTS: Final = 30
"""Windows for which the excess stays."""
_LEAST_NS, _MOST_NS = 5e3, 50e3
_CLEAR: Final = 3.0
"""Spreads of the quiet path that an excess is at least."""
_STEADY: Final = 1.5
"""Spreads of the quiet path that an excess scatters by at most."""
_FAR: Final = 4.0
"""Spreads that a window counts as, if it lies farther off: so the quiet path's own spread is learnt."""


class DelayShifts:
    """Excess of every directed path over the last seconds."""

    def __init__(self) -> None:
        self.table = Table({"mean_ns": np.float64(0.0), "var_ns2": np.float64(0.0), "steady": np.int64(0)})
        """Per directed path: mean and variance of the excess, windows for which it has been steady."""

    def ensure(self, rows: int) -> None:
        """Have a row for every directed path."""
        self.table.ensure(rows)

    def take(self, number: Int64s, above_ns: Float64s, spread_ns: Float64s) -> tuple[Int64s, Float64s]:
        """Take a window's excess of these directed paths, and the spread that they have when quiet.

        Returns
        -------
        (n,) int64, (n,) float64
            Paths that have become longer (or shorter), and by how much, ns; their excess begins anew.
        """
        t = self.table
        d = above_ns - t["mean_ns"][number]
        least_ns = np.maximum(_LEAST_NS, _CLEAR * spread_ns)
        moved = np.abs(t["mean_ns"][number]) > least_ns  # before, what is far off is the first of an excess
        d = np.where(moved, np.clip(d, -_FAR * spread_ns, _FAR * spread_ns), d)
        mean = t["mean_ns"][number] + _ALPHA * d
        var = (1.0 - _ALPHA) * (t["var_ns2"][number] + _ALPHA * d * d)
        size = np.abs(mean)
        steady = (size > least_ns) & (size < _MOST_NS)
        steady &= var <= (_STEADY * spread_ns) ** 2
        lasted = np.where(steady, t["steady"][number] + 1, 0)
        t["mean_ns"][number], t["var_ns2"][number], t["steady"][number] = mean, var, lasted
        followed = number[lasted >= _LASTS]
        by_ns = mean[lasted >= _LASTS]
        self.table.reset(followed)
        return followed, by_ns
