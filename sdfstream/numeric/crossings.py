"""Whether what several paths lose is lost by something that all of them cross, or by something that some happen to.

Of events of path s there are k among n trials, where all else brings the share ε. With x the share of what is asked
about, and L0, L1 and L2 the Poisson likelihoods of ε, ε + x and ε + 2x, a path that surely crosses it has the
likelihood L1; one that crosses it with an unknown probability p, the same for all paths, in one direction of two or in
either, has

    (1 − p) L0 + p L1      or      (1 − p)² L0 + 2p(1 − p) L1 + p² L2.

Nothing is known of x and p, so that the likelihood of several paths is the mean over a grid of both: a cause that may
fit with any p has no advantage over one that must fit with p = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]

_SHARES: Final = np.geomspace(1e-3, 0.6, 40)
_CROSSED: Final = np.array([1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0])


@dataclass(frozen=True, slots=True)
class CrossingOdds:
    """Log-likelihood ratios of paths, against that all else explains their events.

    Attributes
    ----------
    kind : (paths,) int64
        Paths of one kind have the same counts.
    surely : (kinds, shares) float64
        Of something that the path crosses once.
    perhaps : (kinds, 2 · shares · probabilities) float64
        Of something that it may cross, in one direction or in either.
    """

    kind: Int64s
    surely: Float64s
    perhaps: Float64s

    @classmethod
    def of(cls, events: Int64s, trials: Int64s, others: Float64s) -> CrossingOdds:
        """Of paths with so many events among trials, of which all else brings the share `others`, above 0.

        Examples
        --------
        >>> events = np.array([9, 0, 7, 0, 8, 0, 9, 0])
        >>> odds = CrossingOdds.of(events, np.full(8, 100), np.full(8, 1e-3))
        >>> bool(odds.crossed_by_some(np.arange(8)) > odds.crossed_by_all(np.arange(8)) + 3)
        True
        """
        kinds, kind = np.unique(np.stack([events, trials, others], axis=1), axis=0, return_inverse=True)
        k, n, base = (x[:, np.newaxis] for x in kinds.T)
        surely, twice = (k * np.log1p(m * _SHARES / base) - n * m * _SHARES for m in (1.0, 2.0))
        once = surely[..., np.newaxis]
        with np.errstate(divide="ignore"):
            p, rest = np.log(_CROSSED), np.log1p(-_CROSSED)
        one_direction = np.logaddexp(rest, p + once)
        either = np.logaddexp(np.logaddexp(2 * rest, np.log(2.0) + p + rest + once), 2 * p + twice[..., np.newaxis])
        perhaps = np.concatenate([x.reshape(k.size, -1) for x in (one_direction, either)], axis=1)
        return cls(kind.reshape(-1), surely, perhaps)

    def crossed_by_all(self, paths: Int64s) -> float:
        """Of something that all these paths cross, given by number."""
        return self._mean(self.surely, paths)

    def crossed_by_some(self, paths: Int64s) -> float:
        """Of something that each of these paths may cross."""
        return self._mean(self.perhaps, paths)

    def _mean(self, odds: Float64s, paths: Int64s) -> float:
        logs = np.bincount(self.kind[paths], minlength=odds.shape[0]) @ odds
        most = float(logs.max())
        return most + float(np.log(np.exp(logs - most).mean()))
