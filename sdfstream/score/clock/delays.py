"""Laws of one-way delay, and additional delays. ns; functions of a generator, true time (ns) or a count.

Laws A, B, L40 and L90 are those of the published comparison (docs/scorecard.md): one-way delay 10 µs plus

- A: normal, 5 ns;  B: exponential, mean 10 µs;
- L40, L90: three M/M/1 hops at 40 % and 90 % load (10 Gbit/s, 1.2 µs service).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from sdfstream.records.units import Float64s

Law = Callable[[np.random.Generator, int], Float64s]
"""(generator, n) → n delays."""
Extra = Callable[[Float64s, np.random.Generator], Float64s]
"""(true times of sending, generator) → additional delay of each, ns."""

FLOOR_NS: Final = 10e3
"""The fixed part of every law's delay."""


def law(name: str) -> Law:
    """One-way delays of a published law."""

    def hops(shift: float, mean: float) -> Law:
        def draw(g: np.random.Generator, n: int) -> Float64s:
            draws = [np.maximum(0.0, shift + mean * g.exponential(size=n)) for _ in range(3)]
            total: Float64s = FLOOR_NS + draws[0] + draws[1] + draws[2]
            return total

        return draw

    return {
        "A": lambda g, n: FLOOR_NS + 5.0 * g.standard_normal(n),
        "B": lambda g, n: FLOOR_NS + 10e3 * g.exponential(size=n),
        "L40": hops(-1832.58, 2e3),
        "L90": hops(-1264.33, 12e3),
    }[name]


def standing(low_s: float, high_s: float, fixed_ns: float, mean_ns: float) -> Extra:
    """A queue that never empties between two instants: `fixed_ns` and an exponential of mean `mean_ns`."""

    def more(t: Float64s, g: np.random.Generator) -> Float64s:
        during = (t > low_s * 1e9) & (t < high_s * 1e9)
        return np.where(during, fixed_ns + mean_ns * g.exponential(size=t.size), 0.0)

    return more


def shifted(ns: float, low_s: float = -np.inf, high_s: float = np.inf) -> Extra:
    """`ns` more (or less) between two instants: another route, or a lie about the stamps."""
    return lambda t, g: np.where((t > low_s * 1e9) & (t < high_s * 1e9), ns, 0.0)


def bursts(on_s: float, off_s: float, depth_ns: float) -> Extra:
    """On-off incast: stretches of mean length `on_s`, `off_s` apart on average, both exponential.

    A burst has a depth of its own, exponential of mean `depth_ns`; its packets wait between half of it and all of it.
    So neighbouring packets' delays are correlated, and a whole block of them may be without a clean one.
    """

    def more(t: Float64s, g: np.random.Generator) -> Float64s:
        count = int(2 * t.max() / 1e9 / (on_s + off_s)) + 64
        lengths = np.stack([g.exponential(off_s, count), g.exponential(on_s, count)], axis=1) * 1e9
        edges = np.cumsum(lengths.ravel())
        phase = np.searchsorted(edges, t)
        depth = depth_ns * g.exponential(size=count + 1)[phase // 2]
        return np.where(phase % 2 == 1, depth * g.uniform(0.5, 1.0, t.size), 0.0)

    return more
