"""How much quiet paths scatter: what the delay of any path must exceed to be no noise.

Two 99th percentiles of deviations from normal, which follow slowly: of the paths that scatter as most do, which is the
threshold of all (a path that scatters more has one of its own, by its spread), and of all quiet paths.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_YOUNG: Final = 300
"""Ticks in which noise is learnt fast: from where it starts to its lower bound in twelve seconds."""
_YOUNG_DOWN, _YOUNG_UP, _STEP = 0.02, 0.06, 0.003
"""Longest steps of a percentile per tick, as shares of it: in these ticks, and later."""
_MOST, _WILD = 0.5, 4.0
"""So large a share of all paths shows what is usual; those that scatter so many times as much are left out."""
_FLOOR_NS, _CEILING_NS, _START_NS = 20e3, 2e6, 200e3
"""Bounds of a threshold, and where it starts."""
_TIMES: Final = 3.0
"""A threshold in percentiles."""


class QuietNoise:
    """99th percentiles of quiet paths' deviations from their normal, ns."""

    def __init__(self) -> None:
        self._usual_ns = self._all_ns = _START_NS / _TIMES
        self._ticks = 0

    @property
    def threshold_ns(self) -> float:
        """Excess that is no noise of a path that scatters as most do."""
        return float(np.clip(_TIMES * self._usual_ns, _FLOOR_NS, _CEILING_NS))

    @property
    def rough_threshold_ns(self) -> float:
        """What one quiet path in a hundred nearly reaches, noisy ones among them: of one path alone less is no news."""
        return _TIMES * self._all_ns

    def learn(self, deviation_ns: Floats, spread_ns: Floats) -> None:
        """Take deviations of a tick's quiet windows, (windows,), and the spreads of their paths, (windows,).

        One busy port is an eighth of the paths of a small fabric. Were it the threshold of all, a queue elsewhere would
        be taken for more of it.
        """
        if deviation_ns.size:
            self._ticks += 1
            usual = spread_ns <= _WILD * np.quantile(spread_ns, _MOST)
            self._all_ns = self._stepped(self._all_ns, deviation_ns)
            self._usual_ns = self._stepped(self._usual_ns, deviation_ns[usual])

    def _stepped(self, noise_ns: float, deviation_ns: Floats) -> float:
        """One quantile step, of 0.3 % at most in the end.

        At first steps are longer; those up not so long that a queue is taken for noise before its paths are known to be
        slow, from when on they teach nothing.
        """
        above = float(np.mean(deviation_ns > noise_ns)) - 0.01
        young = self._ticks <= _YOUNG
        step = np.clip(2 * above, -_YOUNG_DOWN, _YOUNG_UP) if young else np.clip(above, -_STEP, _STEP)
        return noise_ns * float(np.exp(step))

    def snapshot(self) -> list[Any]:
        """The whole state as plain values."""
        return [self._usual_ns, self._ticks, self._all_ns]

    def restore(self, state: list[Any]) -> None:
        """Take up a state made by `snapshot`; a release before had one percentile, of all."""
        self._usual_ns, self._ticks = float(state[0]), int(state[1])
        self._all_ns = float(state[2]) if len(state) > 2 else self._usual_ns
